/* xattr.c - extended attributes, which Replicas do not carry. */
#include "change.h"
#include "identity.h"
#include "next.h"

int setxattr(const char *path, const char *name, const void *value, size_t size,
             int flags)
{
    CHANGE(AT_FDCWD, path, CHANGE_RIGHTS,
           NEXT(setxattr)(c.path, name, value, size, flags))
}

int lsetxattr(const char *path, const char *name, const void *value, size_t size,
              int flags)
{
    CHANGE_LINK(AT_FDCWD, path, CHANGE_RIGHTS,
                NEXT(lsetxattr)(path, name, value, size, flags))
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    CHANGE_FD(fd, CHANGE_RIGHTS, NEXT(setxattr)(c.path, name, value, size, flags),
              NEXT(fsetxattr)(fd, name, value, size, flags))
}

int removexattr(const char *path, const char *name)
{
    CHANGE(AT_FDCWD, path, CHANGE_RIGHTS, NEXT(removexattr)(c.path, name))
}

int lremovexattr(const char *path, const char *name)
{
    CHANGE_LINK(AT_FDCWD, path, CHANGE_RIGHTS, NEXT(lremovexattr)(path, name))
}

int fremovexattr(int fd, const char *name)
{
    CHANGE_FD(fd, CHANGE_RIGHTS, NEXT(removexattr)(c.path, name),
              NEXT(fremovexattr)(fd, name))
}

/* origin_of - the name of a held descriptor of the origin's file behind a redirected one;
 * -1: the call is for the descriptor itself. Reading marks nothing. */
static int origin_of(int fd, char name[FD_NAME_BYTES])
{
    int held = identity_hold_fd(fd);
    if (held >= 0)
        sys_fd_name(name, held);
    return held;
}

ssize_t fgetxattr(int fd, const char *name, void *value, size_t size)
{
    char origin[FD_NAME_BYTES];
    int held = origin_of(fd, origin);
    if (held < 0)
        return NEXT(fgetxattr)(fd, name, value, size);
    ssize_t result = getxattr(origin, name, value, size);
    sys_close(held);
    return result;
}

ssize_t flistxattr(int fd, char *list, size_t size)
{
    char origin[FD_NAME_BYTES];
    int held = origin_of(fd, origin);
    if (held < 0)
        return NEXT(flistxattr)(fd, list, size);
    ssize_t result = listxattr(origin, list, size);
    sys_close(held);
    return result;
}
