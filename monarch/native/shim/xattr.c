/* xattr.c - extended attributes, which Replicas do not carry. */
#include "change.h"
#include "identity.h"
#include "next.h"

int setxattr(const char *path, const char *name, const void *value, size_t size,
             int flags)
{
    char other[PATH_BYTES_MAX];
    const char *to = change_path(other, AT_FDCWD, path, CHANGE_RIGHTS);
    return NEXT(setxattr)(to, name, value, size, flags);
}

int lsetxattr(const char *path, const char *name, const void *value, size_t size,
              int flags)
{
    mark_path(AT_FDCWD, path, CHANGE_RIGHTS, false);
    return NEXT(lsetxattr)(path, name, value, size, flags);
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    char other[PATH_BYTES_MAX];
    const char *origin = change_descriptor(other, fd, CHANGE_RIGHTS);
    return origin ? NEXT(setxattr)(origin, name, value, size, flags)
                  : NEXT(fsetxattr)(fd, name, value, size, flags);
}

int removexattr(const char *path, const char *name)
{
    char other[PATH_BYTES_MAX];
    return NEXT(removexattr)(change_path(other, AT_FDCWD, path, CHANGE_RIGHTS), name);
}

int lremovexattr(const char *path, const char *name)
{
    mark_path(AT_FDCWD, path, CHANGE_RIGHTS, false);
    return NEXT(lremovexattr)(path, name);
}

int fremovexattr(int fd, const char *name)
{
    char other[PATH_BYTES_MAX];
    const char *origin = change_descriptor(other, fd, CHANGE_RIGHTS);
    return origin ? NEXT(removexattr)(origin, name) : NEXT(fremovexattr)(fd, name);
}

/* Reading asks the origin's path; nothing is marked. */
ssize_t fgetxattr(int fd, const char *name, void *value, size_t size)
{
    char origin[PATH_BYTES_MAX];
    uint64_t file;
    return identity_origin_of_fd(fd, origin, &file)
               ? getxattr(origin, name, value, size)
               : NEXT(fgetxattr)(fd, name, value, size);
}

ssize_t flistxattr(int fd, char *list, size_t size)
{
    char origin[PATH_BYTES_MAX];
    uint64_t file;
    return identity_origin_of_fd(fd, origin, &file) ? listxattr(origin, list, size)
                                                    : NEXT(flistxattr)(fd, list, size);
}
