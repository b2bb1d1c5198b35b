/* object.c - asks the kernel for the identity of a file without troubling a file server:
 * what the client has cached will do, since identities do not change. */
#include "object.h"

#include <errno.h>
#include <sys/sysmacros.h>

#include "sys.h"

static const unsigned WANTED = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_INO |
                               STATX_SIZE | STATX_MTIME;

/* stat_instead - before Linux 4.11, and in sandboxes that know no statx(). */
static bool stat_instead(int dirfd, const char *path, int flags, struct stat *out)
{
    return sys_stat(dirfd, path, out, flags) == 0 ||
           (!path[0] && sys_fstat(dirfd, out) == 0);
}

/* look - fills in type, mode, links, identity, size and mtime; false: there is nothing,
 * or nobody may ask. */
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

/* object_at - of a path, of its last link itself where that is not followed. */
bool object_at(int dirfd, const char *path, bool follow, struct stat *out)
{
    return path && look(dirfd, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, out);
}

/* object_of - of an open descriptor. */
bool object_of(int fd, struct stat *out)
{
    return fd >= 0 && look(fd, "", AT_EMPTY_PATH, out);
}

/* object_new - the file may have been made just now: its times of birth and of change are
 * the same, or the file system does not tell. */
bool object_new(int fd)
{
    struct statx x;
    long rc = sys_call(SYS_statx, fd, (long)"", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                       STATX_BTIME | STATX_CTIME, (long)&x);
    return rc < 0 || !(x.stx_mask & STATX_BTIME) ||
           (x.stx_btime.tv_sec == x.stx_ctime.tv_sec &&
            x.stx_btime.tv_nsec == x.stx_ctime.tv_nsec);
}

/* object_born_after - the file was made after this moment, as far as its file system
 * tells: it cannot be one that had changed before. */
bool object_born_after(int fd, int64_t ns)
{
    struct statx x;
    long rc = sys_call(SYS_statx, fd, (long)"", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                       STATX_BTIME, (long)&x);
    return rc == 0 && (x.stx_mask & STATX_BTIME) &&
           x.stx_btime.tv_sec * (int64_t)1000000000 + x.stx_btime.tv_nsec > ns;
}
