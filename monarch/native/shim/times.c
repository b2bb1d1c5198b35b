/* times.c - time stamps of the origin's files. */
#include "change.h"
#include "next.h"

int utime(const char *path, const struct utimbuf *times)
{
    CHANGE(AT_FDCWD, path, CHANGE_TIMES, NEXT(utime)(c.path, times))
}

int utimes(const char *path, const struct timeval times[2])
{
    CHANGE(AT_FDCWD, path, CHANGE_TIMES, NEXT(utimes)(c.path, times))
}

int lutimes(const char *path, const struct timeval times[2])
{
    CHANGE_LINK(AT_FDCWD, path, CHANGE_TIMES, NEXT(lutimes)(path, times))
}

int futimes(int fd, const struct timeval times[2])
{
    CHANGE_FD(fd, CHANGE_TIMES, NEXT(utimes)(c.path, times), NEXT(futimes)(fd, times))
}

int futimens(int fd, const struct timespec times[2])
{
    CHANGE_FD(fd, CHANGE_TIMES, NEXT(utimensat)(AT_FDCWD, c.path, times, 0),
              NEXT(futimens)(fd, times))
}

/* No path means the descriptor itself. */
int futimesat(int dirfd, const char *path, const struct timeval times[2])
{
    const char *volatile given = path; /* headers promise that it is not NULL */
    if (given) {
        CHANGE(dirfd, path, CHANGE_TIMES, NEXT(futimesat)(dirfd, c.path, times))
    }
    CHANGE_FD(dirfd, CHANGE_TIMES, NEXT(utimes)(c.path, times),
              NEXT(futimesat)(dirfd, given, times))
}

int utimensat(int dirfd, const char *path, const struct timespec times[2], int flags)
{
    struct changing c;
    return change_at(&c, dirfd, path, flags, CHANGE_TIMES)
               ? change_end(
                     &c, NEXT(utimensat)(dirfd, c.path, times, change_flags(&c, flags)))
               : -1;
}
