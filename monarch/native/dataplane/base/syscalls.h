/* syscalls.h - system calls with retries after signals and short counts, times of files, and
 * futexes. Calls that can fail return -errno. */
#ifndef MONARCH_SYSCALLS_H
#define MONARCH_SYSCALLS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/base/clock.h"

/* file_time - converts a time of the Catalog, negative before 1970, to a struct timespec. */
static inline struct timespec file_time(int64_t ns)
{
    int64_t seconds = ns / (int64_t)SECOND_NS, rest = ns % (int64_t)SECOND_NS;
    if (rest < 0)
        return (struct timespec){seconds - 1, rest + (int64_t)SECOND_NS};
    return (struct timespec){seconds, rest};
}

/* file_followat - opens a path, following links; the descriptor is closed on exec. */
static inline int file_followat(int dir, const char *path, int flags, mode_t mode)
{
    for (;;) {
        int fd = openat(dir, path, flags | O_CLOEXEC, mode);
        if (fd >= 0)
            return fd;
        if (errno != EINTR)
            return -errno;
    }
}

/* file_openat - does the same for a path whose last name must not be a link. */
static inline int file_openat(int dir, const char *path, int flags, mode_t mode)
{
    return file_followat(dir, path, flags | O_NOFOLLOW, mode);
}

/* file_read - reads up to `n` bytes, until at least `enough` have arrived or the file ends; returns
 * their number. */
static inline ssize_t file_read(int fd, void *buffer, size_t n, size_t enough)
{
    size_t got = 0;
    do {
        ssize_t r = read(fd, (char *)buffer + got, n - got);
        if (r > 0)
            got += (size_t)r;
        else if (r == 0)
            break;
        else if (errno != EINTR)
            return -errno;
    } while (got < enough);
    return (ssize_t)got;
}

/* file_write - writes all bytes or fails. */
static inline int file_write(int fd, const void *bytes, size_t n)
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

/* file_write_at - writes all bytes at an offset of a file, or fails. */
static inline int file_write_at(int fd, const void *bytes, size_t n, uint64_t at)
{
    size_t put = 0;
    while (put < n) {
        ssize_t r = pwrite(fd, (const char *)bytes + put, n - put, (off_t)(at + put));
        if (r > 0)
            put += (size_t)r;
        else if (r == 0)
            return -ENOSPC;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

/* file_read_at - reads `n` bytes at an offset of a file, or up to its end; returns their number. */
static inline ssize_t file_read_at(int fd, void *buffer, size_t n, uint64_t at)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = pread(fd, (char *)buffer + got, n - got, (off_t)(at + got));
        if (r > 0)
            got += (size_t)r;
        else if (r == 0)
            break;
        else if (errno != EINTR)
            return -errno;
    }
    return (ssize_t)got;
}

/* futex_wake - wakes up to `count` threads, of any process, that wait on a word. */
static inline void futex_wake(void *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

#endif
