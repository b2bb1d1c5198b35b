/* attributes.c - calls that change the mode, owner, times, length, extended attributes or
 * flags of a file. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "shim/names/change.h"
#include "shim/names/identity.h"
#include "shim/base/next.h"
#include "shim/names/invalidate.h"

/* From linux/fs.h, which some versions of sys/mount.h conflict with. */
#define GETFLAGS _IOC(_IOC_READ, 'f', 1, sizeof(long))
#define SETFLAGS _IOC(_IOC_WRITE, 'f', 2, sizeof(long))
#define ENABLE_VERITY _IOC(_IOC_WRITE, 'f', 133, 128)
#define FSGETXATTR _IOC(_IOC_READ, 'X', 31, 28)
#define FSSETXATTR _IOC(_IOC_WRITE, 'X', 32, 28)

/* From linux/btrfs.h: the arguments of both requests that delete a subvolume. */
#define SNAP_DESTROY _IOC(_IOC_WRITE, 0x94, 15, 4096)
#define SNAP_DESTROY_V2 _IOC(_IOC_WRITE, 0x94, 63, 4096)
enum { SUBVOLUME_NAME = 8, SUBVOLUME_FLAGS = 16, SUBVOLUME_NAME_V2 = 56 };
static const uint64_t SUBVOLUME_BY_ID = 16;

int chmod(const char *path, mode_t mode)
{
    CHANGE(AT_FDCWD, path, CHANGE_RIGHTS, NEXT(chmod)(c.path, mode))
}

int lchmod(const char *path, mode_t mode)
{
    CHANGE_LINK(AT_FDCWD, path, CHANGE_RIGHTS, NEXT(lchmod)(path, mode))
}

int fchmod(int fd, mode_t mode)
{
    CHANGE_FD(fd, CHANGE_RIGHTS, NEXT(chmod)(c.path, mode), NEXT(fchmod)(fd, mode))
}

int fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
    struct changing c;
    return change_at(&c, dirfd, path, flags, CHANGE_RIGHTS)
               ? change_end(
                     &c, NEXT(fchmodat)(dirfd, c.path, mode, change_flags(&c, flags)))
               : -1;
}

int chown(const char *path, uid_t uid, gid_t gid)
{
    CHANGE(AT_FDCWD, path, CHANGE_RIGHTS, NEXT(chown)(c.path, uid, gid))
}

int lchown(const char *path, uid_t uid, gid_t gid)
{
    CHANGE_LINK(AT_FDCWD, path, CHANGE_RIGHTS, NEXT(lchown)(path, uid, gid))
}

int fchown(int fd, uid_t uid, gid_t gid)
{
    CHANGE_FD(fd, CHANGE_RIGHTS, NEXT(chown)(c.path, uid, gid),
              NEXT(fchown)(fd, uid, gid))
}

int fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags)
{
    struct changing c;
    return change_at(&c, dirfd, path, flags, CHANGE_RIGHTS)
               ? change_end(&c, NEXT(fchownat)(dirfd, c.path, uid, gid,
                                               change_flags(&c, flags)))
               : -1;
}

int truncate(const char *path, off_t length)
{
    CHANGE(AT_FDCWD, path, CHANGE_BYTES, NEXT(truncate)(c.path, length))
}

int truncate64(const char *path, off64_t length)
{
    CHANGE(AT_FDCWD, path, CHANGE_BYTES, NEXT(truncate64)(c.path, length))
}

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

/* origin_of - holds the origin's file behind a redirected descriptor, and writes its name;
 * negative: the call is for the descriptor itself. Reading marks nothing. */
static int origin_of(int fd, char name[FD_NAME_BYTES])
{
    int held = identity_hold_fd(attach_for_marking(), fd);
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

/* ioctl_origin - makes the call on the origin's file, opened by its path. */
static int ioctl_origin(const char *origin, unsigned long request, void *argument)
{
    int fd = sys_openat(AT_FDCWD, origin, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        errno = -fd;
        return -1;
    }
    int result = NEXT(ioctl)(fd, request, argument);
    sys_close(fd);
    return result;
}

static int ioctl_get(int fd, unsigned long request, void *argument)
{
    char origin[FD_NAME_BYTES];
    int held = origin_of(fd, origin);
    if (held < 0)
        return NEXT(ioctl)(fd, request, argument);
    int result = ioctl_origin(origin, request, argument);
    sys_close(held);
    return result;
}

static int ioctl_set(int fd, unsigned long request, void *argument)
{
    CHANGE_FD(fd, CHANGE_RIGHTS, ioctl_origin(c.path, request, argument),
              NEXT(ioctl)(fd, request, argument))
}

/* ioctl_destroy - deletes a subvolume, marked like a directory: another one may take its place,
 * with the same inode numbers. */
static int ioctl_destroy(int fd, unsigned long request, void *argument)
{
    const struct segments *seg = attach_for_marking();
    const char *words = argument;
    uint64_t flags = 0;
    if (request == SNAP_DESTROY_V2 && words)
        memcpy(&flags, words + SUBVOLUME_FLAGS, sizeof(flags));
    if (flags & SUBVOLUME_BY_ID)
        for (uint32_t i = 0; seg && i < seg->catalog->root_count; i++)
            mark_root(seg, i, MARKED | MARKED_NAME);
    else if (words)
        invalidate_path(
            seg, fd,
            words + (request == SNAP_DESTROY ? SUBVOLUME_NAME : SUBVOLUME_NAME_V2),
            CHANGE_NAME, false);
    return NEXT(ioctl)(fd, request, argument);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (request == SETFLAGS || request == FSSETXATTR || request == ENABLE_VERITY)
        return ioctl_set(fd, request, argument);
    if (request == SNAP_DESTROY || request == SNAP_DESTROY_V2)
        return ioctl_destroy(fd, request, argument);
    if (request == GETFLAGS || request == FSGETXATTR)
        return ioctl_get(fd, request, argument);
    return NEXT(ioctl)(fd, request, argument);
}
