/* times.c - time stamps of the origin's files. */
#include "change.h"
#include "next.h"

int utime(const char *path, const struct utimbuf *times)
{
    char other[PATH_BYTES_MAX];
    return NEXT(utime)(change_path(other, AT_FDCWD, path, CHANGE_TIMES), times);
}

int utimes(const char *path, const struct timeval times[2])
{
    char other[PATH_BYTES_MAX];
    return NEXT(utimes)(change_path(other, AT_FDCWD, path, CHANGE_TIMES), times);
}

int lutimes(const char *path, const struct timeval times[2])
{
    mark_path(AT_FDCWD, path, CHANGE_TIMES, false);
    return NEXT(lutimes)(path, times);
}

int futimes(int fd, const struct timeval times[2])
{
    char other[PATH_BYTES_MAX];
    const char *origin = change_descriptor(other, fd, CHANGE_TIMES);
    return origin ? NEXT(utimes)(origin, times) : NEXT(futimes)(fd, times);
}

int futimens(int fd, const struct timespec times[2])
{
    char other[PATH_BYTES_MAX];
    const char *origin = change_descriptor(other, fd, CHANGE_TIMES);
    return origin ? NEXT(utimensat)(AT_FDCWD, origin, times, 0)
                  : NEXT(futimens)(fd, times);
}

/* named - what a call on `dirfd` and `path` really has to name; marks it. */
static const char *named(char out[PATH_BYTES_MAX], int dirfd, const char *path,
                         int flags)
{
    if (!path[0] && (flags & AT_EMPTY_PATH)) {
        const char *origin = change_descriptor(out, dirfd, CHANGE_TIMES);
        return origin ? origin : path;
    }
    if (flags & AT_SYMLINK_NOFOLLOW) {
        mark_path(dirfd, path, CHANGE_TIMES, false);
        return path;
    }
    return change_path(out, dirfd, path, CHANGE_TIMES);
}

/* No path means the descriptor itself. */
int futimesat(int dirfd, const char *path, const struct timeval times[2])
{
    char other[PATH_BYTES_MAX];
    if (path)
        return NEXT(futimesat)(dirfd, named(other, dirfd, path, 0), times);
    const char *origin = change_descriptor(other, dirfd, CHANGE_TIMES);
    return origin ? NEXT(utimes)(origin, times) : NEXT(futimesat)(dirfd, path, times);
}

int utimensat(int dirfd, const char *path, const struct timespec times[2], int flags)
{
    char other[PATH_BYTES_MAX];
    const char *volatile given = path; /* headers promise that it is not NULL */
    const char *to = given ? named(other, dirfd, path, flags) : given;
    return NEXT(utimensat)(dirfd, to, times, flags);
}
