/* write_one.c - opens a file for writing and changes its first byte. */
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_WRONLY) : -1;
    return fd < 0 || write(fd, "N", 1) != 1;
}
