/* reader.c - reads a file without the Shim's help: built static, or with raw system
 * calls, or as a library for RTLD_DEEPBIND. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int open_deep(const char *path);

int open_deep(const char *path)
{
#ifdef RAW
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
#else
    return open(path, O_RDONLY);
#endif
}

#ifndef LIBRARY
int main(int argc, char **argv)
{
    char text[6] = "";
    if (argc != 2 || read(open_deep(argv[1]), text, 5) != 5)
        return 1;
    puts(text);
    return 0;
}
#endif
