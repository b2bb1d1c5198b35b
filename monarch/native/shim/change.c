/* change.c - mode, owner and length of the origin's files. */
#include "change.h"

#include <errno.h>

#include "identity.h"
#include "next.h"
#include "object.h"
#include "invalidate.h"

/* lead - leads the call to the origin's file behind a Replica, whatever its name is by
 * now; false: it is not there any more, or the Replica itself is meant, and that must not
 * be changed. */
static bool lead(struct changing *c, const struct board *b, uint64_t file)
{
    int held = c->held;
    if (held == IDENTITY_OTHER)
        return true;
    if (held != IDENTITY_TIER)
        mark_file(b, file, c->change);
    trace_descriptor(b, held, c->change); /* another root may have it, too */
    if (held < 0) {
        errno = identity_error(held);
        return false;
    }
    sys_fd_name(c->name, held);
    c->path = c->name;
    return true;
}

/* begin - judges what the path leads to now, and marks that. */
static bool begin(struct changing *c)
{
    const struct board *b = c->path ? board_marking() : NULL;
    struct stat st;
    uint64_t file = 0;
    c->held = IDENTITY_OTHER;
    if (!b)
        return true;
    if (object_at(c->dirfd, c->path, c->follow, &st) && S_ISREG(st.st_mode))
        c->held = identity_hold_path(b, c->dirfd, c->path, &st, &file);
    if (!lead(c, b, file))
        return false;
    if (c->held < 0)
        trace_path(c->dirfd, c->path, c->change, c->follow);
    return true;
}

/* change_path - before a call that follows links; false: it fails with errno. */
bool change_path(struct changing *c, int dirfd, const char *path, enum change change)
{
    c->dirfd = dirfd;
    c->path = c->given = path;
    c->change = change;
    c->follow = true;
    return begin(c);
}

/* change_link - before a call on a link itself. */
bool change_link(struct changing *c, int dirfd, const char *path, enum change change)
{
    c->dirfd = dirfd;
    c->path = c->given = path;
    c->change = change;
    c->follow = false;
    return begin(c);
}

/* change_descriptor - before a call on a descriptor: c->path is then what to name
 * instead of a redirected one, else NULL. */
bool change_descriptor(struct changing *c, int fd, enum change change)
{
    const struct board *b = board_marking();
    struct stat st;
    uint64_t file = 0;
    c->path = c->given = NULL;
    c->change = change;
    c->held = IDENTITY_OTHER;
    if (!b || !object_of(fd, &st))
        return true;
    c->held = identity_hold(b, fd, &st, &file);
    if (!lead(c, b, file))
        return false;
    if (c->held < 0)
        trace_object(b, fd, NULL, &st, change);
    return true;
}

/* change_at - before a call of the *at() forms; `dirfd` itself with AT_EMPTY_PATH. */
bool change_at(struct changing *c, int dirfd, const char *path, int flags,
               enum change change)
{
    if (!path || path[0] || !(flags & AT_EMPTY_PATH))
        return flags & AT_SYMLINK_NOFOLLOW ? change_link(c, dirfd, path, change)
                                           : change_path(c, dirfd, path, change);
    if (!change_descriptor(c, dirfd, change))
        return false;
    c->path = c->path ? c->path : path;
    return true;
}

/* change_end - after the call: the path may have led to something else meanwhile. */
int change_end(struct changing *c, int result)
{
    const struct board *b = result == 0 && c->given ? board_marking() : NULL;
    struct stat st;
    if (c->held >= 0)
        sys_close(c->held);
    else if (b && object_at(c->dirfd, c->given, c->follow, &st))
        trace_object(b, c->dirfd, c->given, &st, c->change);
    return result;
}

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
