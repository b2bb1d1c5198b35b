/* object.c - asks the kernel for the identity of a file, but no file server: cached data is enough,
 * because identities do not change. */
#include "shim/base/object.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "shim/base/sys.h"

enum {
    HELD_MIN = 64,
    NO_MAGIC_LINKS = 0x02, /* RESOLVE_NO_MAGICLINKS, linux/openat2.h */
    SYS_OPENAT2 = 437,     /* on both of our machines; old headers lack it */
};

static const unsigned WANTED = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_INO |
                               STATX_SIZE | STATX_MTIME;

/* stat_instead - calls stat(), before Linux 4.11 and in sandboxes without statx(). */
static bool stat_instead(int dirfd, const char *path, int flags, struct stat *out)
{
    return sys_stat(dirfd, path, out, flags) == 0 ||
           (!path[0] && sys_fstat(dirfd, out) == 0);
}

/* look - fills in type, mode, links, identity, size and mtime; false: the file does not exist, or
 * cannot be examined. */
static bool look(int dirfd, const char *path, int flags, struct stat *out)
{
    struct statx x;
    long rc = sys_call(SYS_statx, dirfd, (long)path,
                       flags | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, WANTED, (long)&x);
    if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR && rc != -EBADF)
        return stat_instead(dirfd, path, flags, out);
    if (rc < 0)
        return false;
    out->st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    out->st_ino = x.stx_ino;
    out->st_mode = x.stx_mode;
    out->st_nlink = x.stx_nlink;
    out->st_size = (off_t)x.stx_size;
    out->st_mtim.tv_sec = x.stx_mtime.tv_sec;
    out->st_mtim.tv_nsec = x.stx_mtime.tv_nsec;
    return true;
}

/* object_at - looks at the target of a path, or at its last link itself if that is not followed. */
bool object_at(int dirfd, const char *path, bool follow, struct stat *out)
{
    return path && look(dirfd, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, out);
}

/* object_of - looks at the target of an open descriptor. */
bool object_of(int fd, struct stat *out)
{
    return fd >= 0 && look(fd, "", AT_EMPTY_PATH, out);
}

/* object_new - the file may have been created just now: its times of birth and of change are the
 * same, or the file system keeps no birth time. */
bool object_new(int fd)
{
    struct statx x;
    long rc = sys_call(SYS_statx, fd, (long)"", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                       STATX_BTIME | STATX_CTIME, (long)&x);
    return rc < 0 || !(x.stx_mask & STATX_BTIME) ||
           (x.stx_btime.tv_sec == x.stx_ctime.tv_sec &&
            x.stx_btime.tv_nsec == x.stx_ctime.tv_nsec);
}

static int64_t nanoseconds(const struct statx_timestamp *t)
{
    return t->tv_sec * (int64_t)1000000000 + t->tv_nsec;
}

/* object_birth - returns whether the target of a path or (NULL) a descriptor was created after this
 * moment. Without a birth time, a file that has not changed since was not created since either. */
enum birth object_birth(int fd, const char *path, int64_t ns)
{
    struct statx x;
    long rc = sys_call(SYS_statx, fd, (long)(path ? path : ""),
                       (path ? 0 : AT_EMPTY_PATH) | AT_STATX_DONT_SYNC,
                       STATX_BTIME | STATX_CTIME, (long)&x);
    if (rc < 0)
        return BIRTH_UNTOLD;
    if (!(x.stx_mask & STATX_BTIME))
        return nanoseconds(&x.stx_ctime) < ns ? BIRTH_BEFORE : BIRTH_UNTOLD;
    return nanoseconds(&x.stx_btime) > ns ? BIRTH_AFTER : BIRTH_BEFORE;
}

/* object_hold - returns an O_PATH descriptor of the target of a path, or -errno. Low numbers are
 * left to the program. */
int object_hold(int dirfd, const char *path, int flags)
{
    int low = sys_openat(dirfd, path, O_PATH | O_CLOEXEC | flags);
    if (low < 0)
        return low;
    int fd = (int)sys_call(SYS_fcntl, low, F_DUPFD_CLOEXEC, HELD_MIN, 0, 0);
    if (fd < 0)
        return low;
    sys_close(low);
    return fd;
}

/* object_in_proc - a name in /proc, or one of its links in /dev. */
bool object_in_proc(const char *path)
{
    if (path[0] != '/' || (path[1] != 'p' && path[1] != 'd'))
        return false;
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd", 7) == 0 ||
           strncmp(path, "/dev/std", 8) == 0;
}

/* object_by_descriptor - a path passes through the name of a descriptor in /proc, which leads to
 * the opened file, wherever that is. Without openat2(), before Linux 5.6 and in sandboxes, its text
 * decides. */
bool object_by_descriptor(int dirfd, const char *path)
{
    struct stat st;
    const struct { /* struct open_how, openat2(2) */
        uint64_t flags, mode, resolve;
    } how = {O_PATH | O_CLOEXEC, 0, NO_MAGIC_LINKS};
    if (look(dirfd, path, AT_SYMLINK_NOFOLLOW, &st) && !S_ISLNK(st.st_mode))
        return false;
    if (object_in_proc(path))
        return true;
    long fd = sys_call(SYS_OPENAT2, dirfd, (long)path, (long)&how, sizeof(how), 0);
    if (fd >= 0)
        sys_close((int)fd);
    return fd == -ELOOP;
}
