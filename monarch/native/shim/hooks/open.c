/* open.c - the open family, and descriptors that are received in other ways. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "shim/names/directories.h"
#include "shim/serving/large_reads.h"
#include "shim/base/next.h"
#include "shim/serving/redirects.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"

/* The mode exists only with these flags; reading it otherwise would be undefined. */
#define MODE_OF(flags, mode)                                     \
    mode_t mode = 0;                                             \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                            \
        va_start(rest, flags);                                   \
        mode = va_arg(rest, mode_t);                             \
        va_end(rest);                                            \
    }

/* Opens s.path first if it is set; otherwise, and after its failure, the program's path, always by
 * the next function and with the caller's own arguments. */
#define OPEN(serve, at, path, flags, staged, given)                                 \
    struct redirect s;                                                              \
    int fd;                                                                         \
    if (serve(&s, at, path, flags)) {                                               \
        s.kept_errno = errno;                                                       \
        fd = (staged);                                                              \
        if (fd < 0 && redirect_eases(&s))                                           \
            fd = (staged);                                                          \
        while (__builtin_expect(redirect_moved(&s), 0)) {                           \
            if (fd >= 0)                                                            \
                sys_close(fd);                                                      \
            fd = s.path ? (staged) : -1;                                            \
        }                                                                           \
        if (redirect_opened(&s, fd >= 0))                                           \
            return fd;                                                              \
    } else if (redirect_may_lack(&s) &&                                             \
               directory_lacks_at(s.seg, at, path, s.named)) {                      \
        errno = ENOENT;                                                             \
        return -1;                                                                  \
    }                                                                               \
    fd = (given);                                                                   \
    if (__builtin_expect(s.large, 0))                                               \
        large_note(fd, s.file);                                                     \
    if (__builtin_expect(s.sampled | s.doubted | s.writes, 0) &&                    \
        (s.writes ? redirect_diverts(&s, at, path, fd) : redirect_found(&s, fd))) { \
        if (fd >= 0)                                                                \
            sys_close(fd);                                                          \
        fd = (staged);                                                              \
        redirect_opened(&s, fd >= 0);                                               \
    }                                                                               \
    if (__builtin_expect(s.cause != CAUSE_NONE, 0))                                 \
        redirect_count(&s, at, path, fd);                                           \
    if (__builtin_expect(s.cuts, 0) && !redirect_cut(&s, at, path, &fd)) {          \
        fd = (given);                                                               \
        redirect_written(&s, fd);                                                   \
    }                                                                               \
    return fd;

int open(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(redirect_open, AT_FDCWD, path, flags, NEXT(open)(s.path, s.flags, mode),
         NEXT(open)(path, s.named, mode))
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(redirect_open, AT_FDCWD, path, flags, NEXT(open64)(s.path, s.flags, mode),
         NEXT(open64)(path, s.named, mode))
}

int openat(int dirfd, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(redirect_open, dirfd, path, flags, NEXT(openat)(dirfd, s.path, s.flags, mode),
         NEXT(openat)(dirfd, path, s.named, mode))
}

int openat64(int dirfd, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(redirect_open, dirfd, path, flags,
         NEXT(openat64)(dirfd, s.path, s.flags, mode),
         NEXT(openat64)(dirfd, path, s.named, mode))
}

int __open_2(const char *path, int flags)
{
    OPEN(redirect_open, AT_FDCWD, path, flags, NEXT(__open_2)(s.path, s.flags),
         NEXT(__open_2)(path, s.named))
}

int __open64_2(const char *path, int flags)
{
    OPEN(redirect_open, AT_FDCWD, path, flags, NEXT(__open64_2)(s.path, s.flags),
         NEXT(__open64_2)(path, s.named))
}

int __openat_2(int dirfd, const char *path, int flags)
{
    OPEN(redirect_open, dirfd, path, flags, NEXT(__openat_2)(dirfd, s.path, s.flags),
         NEXT(__openat_2)(dirfd, path, s.named))
}

int __openat64_2(int dirfd, const char *path, int flags)
{
    OPEN(redirect_open, dirfd, path, flags, NEXT(__openat64_2)(dirfd, s.path, s.flags),
         NEXT(__openat64_2)(dirfd, path, s.named))
}

int __open(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(redirect_open, AT_FDCWD, path, flags, NEXT(__open)(s.path, s.flags, mode),
         NEXT(__open)(path, s.named, mode))
}

int __open64(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    OPEN(redirect_open, AT_FDCWD, path, flags, NEXT(__open64)(s.path, s.flags, mode),
         NEXT(__open64)(path, s.named, mode))
}

/* opened_anew - opens the file in place of an outdated Replica, which an open that was not served
 * may have met by its name in /proc. */
static int opened_anew(int fd, int dirfd, const char *path, int flags)
{
    struct redirect s;
    redirect_handle(&s, flags);
    if (!s.seg)
        return fd;
    if (redirect_found(&s, fd)) {
        sys_close(fd);
        fd = NEXT(open)(s.path, s.flags, 0);
        redirect_opened(&s, fd >= 0);
    }
    if (!(flags & (O_PATH | O_DIRECTORY)))
        s.cause = CAUSE_SOUGHT;
    if (path && s.cause == CAUSE_SOUGHT)
        redirect_count(&s, dirfd, path, fd);
    return fd;
}

/* It resolves paths in other ways than we do, so a read-only open is not served. */
int openat2(int dirfd, const char *path, const struct open_how *how, size_t size)
{
    const void *volatile given = how;
    uint64_t flags = 0; /* the first member, whatever the version of the struct */
    if (given && size >= sizeof(flags))
        memcpy(&flags, how, sizeof(flags));
    if (!(flags & (O_ACCMODE | O_TRUNC | O_CREAT)))
        return opened_anew(NEXT(openat2)(dirfd, path, how, size), dirfd, path,
                           (int)flags);
    OPEN(redirect_whole, dirfd, path, (int)flags,
         NEXT(openat2)(dirfd, s.path, how, size), NEXT(openat2)(dirfd, path, how, size))
}

int creat(const char *path, mode_t mode)
{
    OPEN(redirect_open, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC,
         NEXT(creat)(s.path, mode), NEXT(open)(path, s.named, mode))
}

int creat64(const char *path, mode_t mode)
{
    OPEN(redirect_open, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC,
         NEXT(creat64)(s.path, mode), NEXT(open64)(path, s.named, mode))
}

/* received - marks the file that a new descriptor can change; stores nothing about it. */
static int received(int fd)
{
    if (fd >= 0)
        invalidate_if_writable(attach_for_marking(), fd);
    return fd;
}

int open_by_handle_at(int mount_fd, struct file_handle *handle, int flags)
{
    struct redirect s;
    redirect_handle(&s, flags);
    int fd = NEXT(open_by_handle_at)(mount_fd, handle, s.named);
    if (fd < 0 ||
        !(s.writes ? redirect_diverts(&s, AT_FDCWD, NULL, fd) : redirect_found(&s, fd)))
        return s.cuts && !redirect_cut(&s, AT_FDCWD, NULL, &fd)
                   ? NEXT(open_by_handle_at)(mount_fd, handle, s.named)
                   : fd;
    sys_close(fd);
    fd = NEXT(open)(s.path, s.flags, 0);
    redirect_opened(&s, fd >= 0);
    return fd;
}

int pidfd_getfd(int pidfd, int target, unsigned flags)
{
    return received(NEXT(pidfd_getfd)(pidfd, target, flags));
}

int shm_open(const char *name, int flags, mode_t mode)
{
    return received(NEXT(shm_open)(name, flags, mode));
}
