/* names.c - names that come, go or change: marked before, or where it worked. */
#include <errno.h>

#include "change.h"
#include "next.h"

/* A name that goes is marked before the call. */
#define GONE(at, path, call)                 \
    mark_path(at, path, CHANGE_NAME, false); \
    return call;

/* A name that comes marks its directory before; after, what the Catalog had there. */
#define COMES(at, path, call)                  \
    mark_path(at, path, CHANGE_CREATE, false); \
    int result = call;                         \
    mark_created(at, path, result);            \
    return result;

int rename(const char *from, const char *to)
{
    mark_path(AT_FDCWD, from, CHANGE_NAME, false);
    GONE(AT_FDCWD, to, NEXT(rename)(from, to))
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    mark_path(from_fd, from, CHANGE_NAME, false);
    GONE(to_fd, to, NEXT(renameat)(from_fd, from, to_fd, to))
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    mark_path(from_fd, from, CHANGE_NAME, false);
    GONE(to_fd, to, NEXT(renameat2)(from_fd, from, to_fd, to, flags))
}

int unlink(const char *path)
{
    GONE(AT_FDCWD, path, NEXT(unlink)(path))
}

int unlinkat(int dirfd, const char *path, int flags)
{
    if (flags & AT_REMOVEDIR) {
        COMES(dirfd, path, NEXT(unlinkat)(dirfd, path, flags))
    }
    GONE(dirfd, path, NEXT(unlinkat)(dirfd, path, flags))
}

/* A directory that is not empty stays, and nothing has happened: programs try. */
int rmdir(const char *path)
{
    COMES(AT_FDCWD, path, NEXT(rmdir)(path))
}

int remove(const char *path)
{
    mark_path(AT_FDCWD, path, CHANGE_NAME, false);
    return NEXT(remove)(path);
}

/* The old name gains a link: its metadata changes. */
int link(const char *from, const char *to)
{
    mark_path(AT_FDCWD, from, CHANGE_RIGHTS, false);
    COMES(AT_FDCWD, to, NEXT(link)(from, to))
}

/* linked - what a link is really made to: by /proc/self/fd/N or by the descriptor
 * itself, it could be a Replica. */
static const char *linked(char out[PATH_BYTES_MAX], int fd, const char *from, int flags)
{
    if (from && !from[0] && (flags & AT_EMPTY_PATH)) {
        const char *origin = change_descriptor(out, fd, CHANGE_RIGHTS);
        return origin ? origin : from;
    }
    if (flags & AT_SYMLINK_FOLLOW)
        return change_path(out, fd, from, CHANGE_RIGHTS);
    mark_path(fd, from, CHANGE_RIGHTS, false);
    return from;
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    char other[PATH_BYTES_MAX];
    const char *origin = linked(other, from_fd, from, flags);
    COMES(to_fd, to, NEXT(linkat)(from_fd, origin, to_fd, to, flags))
}

int symlink(const char *target, const char *path)
{
    COMES(AT_FDCWD, path, NEXT(symlink)(target, path))
}

int symlinkat(const char *target, int dirfd, const char *path)
{
    COMES(dirfd, path, NEXT(symlinkat)(target, dirfd, path))
}

int mkdir(const char *path, mode_t mode)
{
    COMES(AT_FDCWD, path, NEXT(mkdir)(path, mode))
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    COMES(dirfd, path, NEXT(mkdirat)(dirfd, path, mode))
}

int mkfifo(const char *path, mode_t mode)
{
    COMES(AT_FDCWD, path, NEXT(mkfifo)(path, mode))
}

int mkfifoat(int dirfd, const char *path, mode_t mode)
{
    COMES(dirfd, path, NEXT(mkfifoat)(dirfd, path, mode))
}

int mknod(const char *path, mode_t mode, dev_t dev)
{
    COMES(AT_FDCWD, path, NEXT(mknod)(path, mode, dev))
}

int mknodat(int dirfd, const char *path, mode_t mode, dev_t dev)
{
    COMES(dirfd, path, NEXT(mknodat)(dirfd, path, mode, dev))
}

int __xmknod(int ver, const char *path, mode_t mode, dev_t *dev)
{
    COMES(AT_FDCWD, path, NEXT(__xmknod)(ver, path, mode, dev))
}

int __xmknodat(int ver, int dirfd, const char *path, mode_t mode, dev_t *dev)
{
    COMES(dirfd, path, NEXT(__xmknodat)(ver, dirfd, path, mode, dev))
}
