/* leave.c - calls after which paths or rights are no longer those of the Catalog. */
#include "trace.h"
#include "next.h"

/* A changed view of the file system ends the Shim's work in this process. */
#define LEAVE(when, call)      \
    int result = call;         \
    if (result == 0 && (when)) \
        board_leave();         \
    return result;

/* A changed identity may lose or gain rights that stat answers imply; setting what is
 * already so changes nothing. */
#define BECOME(kind, call)                 \
    int kind##_before = (int)gete##kind(); \
    LEAVE((int)gete##kind() != kind##_before, call)

int chroot(const char *path)
{
    LEAVE(1, NEXT(chroot)(path))
}

int pivot_root(const char *new_root, const char *put_old)
{
    LEAVE(1, NEXT(pivot_root)(new_root, put_old))
}

int unshare(int flags)
{
    LEAVE(flags & (CLONE_NEWNS | CLONE_NEWUSER), NEXT(unshare)(flags))
}

int setns(int fd, int type)
{
    LEAVE(type == 0 || (type & (CLONE_NEWNS | CLONE_NEWUSER)), NEXT(setns)(fd, type))
}

/* What is mounted on, or taken away from, a directory changes all that is below it. */
int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *options)
{
    trace_path(AT_FDCWD, target, CHANGE_NAME, false);
    return NEXT(mount)(source, target, type, flags, options);
}

int umount(const char *target)
{
    trace_path(AT_FDCWD, target, CHANGE_NAME, false);
    return NEXT(umount)(target);
}

int umount2(const char *target, int flags)
{
    trace_path(AT_FDCWD, target, CHANGE_NAME, false);
    return NEXT(umount2)(target, flags);
}

int setuid(uid_t uid)
{
    BECOME(uid, NEXT(setuid)(uid))
}

int seteuid(uid_t uid)
{
    BECOME(uid, NEXT(seteuid)(uid))
}

int setreuid(uid_t ruid, uid_t euid)
{
    BECOME(uid, NEXT(setreuid)(ruid, euid))
}

int setresuid(uid_t ruid, uid_t euid, uid_t suid)
{
    BECOME(uid, NEXT(setresuid)(ruid, euid, suid))
}

int setgid(gid_t gid)
{
    BECOME(gid, NEXT(setgid)(gid))
}

int setegid(gid_t gid)
{
    BECOME(gid, NEXT(setegid)(gid))
}

int setregid(gid_t rgid, gid_t egid)
{
    BECOME(gid, NEXT(setregid)(rgid, egid))
}

int setresgid(gid_t rgid, gid_t egid, gid_t sgid)
{
    BECOME(gid, NEXT(setresgid)(rgid, egid, sgid))
}
