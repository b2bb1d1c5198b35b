/* read_openat.c - walks a tree with directory descriptors and relative paths only. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* hash_file - FNV-1a of the bytes behind a descriptor, read with pread. */
static uint64_t hash_file(int fd)
{
    uint64_t hash = 0xcbf29ce484222325u;
    unsigned char block[4096];
    off_t at = 0;
    ssize_t count;

    while ((count = pread(fd, block, sizeof(block), at)) > 0) {
        for (ssize_t i = 0; i < count; i++)
            hash = (hash ^ block[i]) * 0x100000001b3u;
        at += count;
    }
    return hash;
}

/* show_file - prints one file by its name in a directory; 0 or 1. */
static int show_file(int dir, const char *name, const struct stat *found)
{
    struct stat by_fd;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &by_fd) < 0) {
        perror(name);
        return 1;
    }
    printf("%s %016" PRIx64 " %jd %d\n", name, hash_file(fd), (intmax_t)found->st_size,
           by_fd.st_ino == found->st_ino && by_fd.st_dev == found->st_dev);
    close(fd);
    return 0;
}

/* walk - prints every file below a directory, whose descriptor it takes; 0 or 1. */
static int walk(int dir)
{
    struct dirent **names;
    int failed = 0, count = scandirat(dir, ".", &names, NULL, alphasort);

    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        struct stat found;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) < 0)
            failed = 1;
        else if (S_ISDIR(found.st_mode))
            failed |= walk(openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        else if (S_ISREG(found.st_mode))
            failed |= show_file(dir, name, &found);
        free(names[i]);
    }
    if (count < 0)
        return 1;
    free(names);
    close(dir);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) < 0)
        return 2;
    return walk(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
