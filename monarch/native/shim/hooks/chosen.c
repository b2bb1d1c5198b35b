/* chosen.c - names that are not an argument of the call: libc chooses the names of temporary files
 * and directories, and sockets have theirs in their address. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#include "shim/names/invalidate.h"
#include "shim/base/next.h"

/* mark_before - marks the directory that gains a name, before the call. */
static void mark_before(const char *path)
{
    invalidate_path(attach_for_marking(), AT_FDCWD, path, CHANGE_CREATE, false);
}

/* mark_after - marks again after the call: the path may lead to another directory by now. */
static int mark_after(const char *path, int result)
{
    invalidate_created(attach_for_marking(), AT_FDCWD, path, result < 0 ? result : 0);
    return result;
}

int mkstemp(char *path)
{
    mark_before(path);
    return mark_after(path, NEXT(mkstemp)(path));
}

int mkstemp64(char *path)
{
    mark_before(path);
    return mark_after(path, NEXT(mkstemp64)(path));
}

int mkostemp(char *path, int flags)
{
    mark_before(path);
    return mark_after(path, NEXT(mkostemp)(path, flags));
}

int mkostemp64(char *path, int flags)
{
    mark_before(path);
    return mark_after(path, NEXT(mkostemp64)(path, flags));
}

int mkstemps(char *path, int tail)
{
    mark_before(path);
    return mark_after(path, NEXT(mkstemps)(path, tail));
}

int mkstemps64(char *path, int tail)
{
    mark_before(path);
    return mark_after(path, NEXT(mkstemps64)(path, tail));
}

int mkostemps(char *path, int tail, int flags)
{
    mark_before(path);
    return mark_after(path, NEXT(mkostemps)(path, tail, flags));
}

int mkostemps64(char *path, int tail, int flags)
{
    mark_before(path);
    return mark_after(path, NEXT(mkostemps64)(path, tail, flags));
}

char *mkdtemp(char *path)
{
    mark_before(path);
    char *made = NEXT(mkdtemp)(path);
    mark_after(path, made ? 0 : -1);
    return made;
}

enum { SOCKET_PATH_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) };

/* socket_path - writes the name in an address; "" if that is of another kind. */
static void socket_path(const struct sockaddr *address, socklen_t bytes,
                        char out[SOCKET_PATH_BYTES + 1])
{
    const size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t n = bytes > head ? bytes - head : 0;
    if (!address || n > SOCKET_PATH_BYTES || n == 0 || address->sa_family != AF_UNIX)
        n = 0;
    else
        memcpy(out, ((const struct sockaddr_un *)(const void *)address)->sun_path, n);
    out[n] = 0;
}

int bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
    const struct sockaddr *volatile given = address; /* headers promise: not NULL */
    char path[SOCKET_PATH_BYTES + 1];
    socket_path(given, bytes, path);
    if (!path[0])
        return NEXT(bind)(fd, address, bytes);
    mark_before(path);
    return mark_after(path, NEXT(bind)(fd, address, bytes));
}
