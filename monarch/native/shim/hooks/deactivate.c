/* deactivate.c - calls after which paths or rights are no longer those of the Catalog. */
#include <errno.h>
#include <fcntl.h>

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1 /* linux/mount.h */
#endif

#include "shim/hooks/child_env.h"
#include "shim/names/identity.h"
#include "shim/names/mounts.h"
#include "shim/base/next.h"
#include "shim/base/sys.h"
#include "shared/rights.h"
#include "shim/names/invalidate.h"

/* leave - ends serving in this process; programs that libc itself starts from now on do not preload
 * a library that they could not load. */
static void leave(void)
{
    detach();
    child_scrub();
}

/* Changed rights, or another user namespace, end serving in this process. */
#define LEAVE(when, call)      \
    int result = call;         \
    if (result == 0 && (when)) \
        leave();               \
    return result;

static void view_ends(bool when)
{
    if (when)
        invalidate_view(attached_segments());
}

static bool became_another(const struct rights *before)
{
    struct rights after;
    rights_read(&after);
    return !rights_same(before, &after);
}

/* Changed rights may be fewer, or more, than those that served files and stat answers imply;
 * setting equal rights changes nothing. */
#define BECOME(call)      \
    struct rights before; \
    rights_read(&before); \
    LEAVE(became_another(&before), call)

/* A changed view of the file system ends serving, too. */
#define MOVE(when, call) \
    view_ends(when);     \
    LEAVE(when, call)

int chroot(const char *path)
{
    MOVE(1, NEXT(chroot)(path))
}

int pivot_root(const char *new_root, const char *put_old)
{
    MOVE(1, NEXT(pivot_root)(new_root, put_old))
}

int unshare(int flags)
{
    MOVE(flags & (CLONE_NEWNS | CLONE_NEWUSER), NEXT(unshare)(flags))
}

int setns(int fd, int type)
{
    MOVE(type == 0 || (type & (CLONE_NEWNS | CLONE_NEWUSER)), NEXT(setns)(fd, type))
}

/* A mount or unmount covers or shows other files: each process checks its view again. */
#define MOUNT(call)                         \
    int result = call;                      \
    if (result == 0)                        \
        mounts_moved(attach_for_marking()); \
    return result;

/* bound - returns the source of a bind mount: the origin's file in place of a Replica, which would
 * be written to by that name. */
static const char *bound(int dirfd, const char *source, char *origin)
{
    const struct segments *seg = source && origin ? attach_for_marking() : NULL;
    uint64_t file;
    int kept = errno;
    bool found = seg && identity_origin_of_path(seg, dirfd, source, origin, &file);
    errno = kept;
    return found ? origin : source;
}

int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *options)
{
    SCRATCH(origin);
    if ((flags & MS_BIND) && !(flags & MS_REMOUNT))
        source = bound(AT_FDCWD, source, origin);
    MOUNT(NEXT(mount)(source, target, type, flags, options))
}

/* move_mount() may attach a copy of a mount elsewhere. */
int open_tree(int dirfd, const char *path, unsigned flags)
{
    char name[FD_NAME_BYTES];
    SCRATCH(origin);
    if (!(flags & OPEN_TREE_CLONE) || !path)
        return NEXT(open_tree)(dirfd, path, flags);
    sys_fd_name(name, dirfd);
    bool itself = !path[0] && (flags & AT_EMPTY_PATH);
    const char *source = bound(dirfd, itself ? name : path, origin);
    return source == origin ? NEXT(open_tree)(AT_FDCWD, origin, flags)
                            : NEXT(open_tree)(dirfd, path, flags);
}

int umount(const char *target)
{
    MOUNT(NEXT(umount)(target))
}

int umount2(const char *target, int flags)
{
    MOUNT(NEXT(umount2)(target, flags))
}

int move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    MOUNT(NEXT(move_mount)(from_fd, from, to_fd, to, flags))
}

int setuid(uid_t uid)
{
    BECOME(NEXT(setuid)(uid))
}

int seteuid(uid_t uid)
{
    BECOME(NEXT(seteuid)(uid))
}

int setreuid(uid_t ruid, uid_t euid)
{
    BECOME(NEXT(setreuid)(ruid, euid))
}

int setresuid(uid_t ruid, uid_t euid, uid_t suid)
{
    BECOME(NEXT(setresuid)(ruid, euid, suid))
}

int setgid(gid_t gid)
{
    BECOME(NEXT(setgid)(gid))
}

int setegid(gid_t gid)
{
    BECOME(NEXT(setegid)(gid))
}

int setregid(gid_t rgid, gid_t egid)
{
    BECOME(NEXT(setregid)(rgid, egid))
}

int setresgid(gid_t rgid, gid_t egid, gid_t sgid)
{
    BECOME(NEXT(setresgid)(rgid, egid, sgid))
}

int setgroups(size_t count, const gid_t *groups)
{
    BECOME(NEXT(setgroups)(count, groups))
}

int initgroups(const char *user, gid_t group)
{
    BECOME(NEXT(initgroups)(user, group))
}

int capset(void *header, const void *sets)
{
    BECOME(NEXT(capset)(header, sets))
}

/* These return the former id; with an invalid id, they return the current one. */
int setfsuid(uid_t uid)
{
    int before = NEXT(setfsuid)(uid);
    if (NEXT(setfsuid)((uid_t)-1) != before)
        leave();
    return before;
}

int setfsgid(gid_t gid)
{
    int before = NEXT(setfsgid)(gid);
    if (NEXT(setfsgid)((gid_t)-1) != before)
        leave();
    return before;
}
