/* files.c - system calls that are carried on through signals and short counts, and times
 * of files. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/transfer.h"

/* file_time - a time of the Catalog as the kernel has it; before 1970 it is negative. */
struct timespec file_time(int64_t ns)
{
    int64_t seconds = ns / (int64_t)SECOND_NS, rest = ns % (int64_t)SECOND_NS;
    if (rest < 0)
        return (struct timespec){seconds - 1, rest + (int64_t)SECOND_NS};
    return (struct timespec){seconds, rest};
}

/* file_openat - a descriptor or -errno. */
int file_openat(int dir, const char *path, int flags, mode_t mode)
{
    for (;;) {
        int fd = openat(dir, path, flags | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd >= 0)
            return fd;
        if (errno != EINTR)
            return -errno;
    }
}

/* file_read - reads until `n` bytes are there or the file ends; their number or -errno. */
ssize_t file_read(int fd, void *buffer, size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = read(fd, (char *)buffer + got, n - got);
        if (r > 0)
            got += (size_t)r;
        else if (r == 0)
            break;
        else if (errno != EINTR)
            return -errno;
    }
    return (ssize_t)got;
}

/* file_write - writes all or returns -errno. */
int file_write(int fd, const void *bytes, size_t n)
{
    size_t put = 0;
    while (put < n) {
        ssize_t r = write(fd, (const char *)bytes + put, n - put);
        if (r > 0)
            put += (size_t)r;
        else if (r == 0)
            return -ENOSPC;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}
