/* change.c - the steps around a call that changes a file: marks before and after it, and leads it
 * to the origin's file if the program names a Replica. */
#include "shim/names/change.h"

#include <errno.h>

#include "shim/names/identity.h"
#include "shim/base/object.h"
#include "shim/names/invalidate.h"

/* lead - leads the call to the origin's file behind a Replica, whatever its name is by now; false:
 * it has lost its names, or the path names the Replica in its Tier, which must not be changed. */
static bool lead(struct changing *c, const struct segments *seg, uint64_t file)
{
    int held = c->held;
    if (held == IDENTITY_OTHER)
        return true;
    if (held != IDENTITY_TIER)
        mark_file(seg, file, c->change);
    invalidate_descriptor(seg, held, c->change); /* another root may have it, too */
    if (held < 0) {
        errno = identity_error(held);
        return false;
    }
    sys_fd_name(c->name, held);
    c->path = c->name;
    return true;
}

/* begin - finds and marks the current target of the path. */
static bool begin(struct changing *c)
{
    const struct segments *seg = c->path ? attach_for_marking() : NULL;
    struct stat st;
    uint64_t file = 0;
    c->held = IDENTITY_OTHER;
    if (!seg)
        return true;
    if (object_at(c->dirfd, c->path, c->follow, &st) && S_ISREG(st.st_mode))
        c->held = identity_hold_path(seg, c->dirfd, c->path, &st, &file);
    if (!lead(c, seg, file))
        return false;
    if (c->held < 0)
        invalidate_path(attach_for_marking(), c->dirfd, c->path, c->change, c->follow);
    return true;
}

/* change_path - prepares a call that follows links; false: it fails with errno. */
bool change_path(struct changing *c, int dirfd, const char *path, enum change change)
{
    c->dirfd = dirfd;
    c->path = c->given = path;
    c->change = change;
    c->follow = true;
    return begin(c);
}

/* change_link - prepares a call on a link itself. */
bool change_link(struct changing *c, int dirfd, const char *path, enum change change)
{
    c->dirfd = dirfd;
    c->path = c->given = path;
    c->change = change;
    c->follow = false;
    return begin(c);
}

/* change_descriptor - prepares a call on a descriptor: c->path is then the name to use instead of a
 * redirected one, else NULL. */
bool change_descriptor(struct changing *c, int fd, enum change change)
{
    const struct segments *seg = attach_for_marking();
    struct stat st;
    uint64_t file = 0;
    c->path = c->given = NULL;
    c->change = change;
    c->held = IDENTITY_OTHER;
    if (!seg || !object_of(fd, &st))
        return true;
    c->held = identity_hold(seg, fd, &st, &file);
    if (!lead(c, seg, file))
        return false;
    if (c->held < 0)
        invalidate_object(seg, fd, NULL, &st, change);
    return true;
}

/* change_at - prepares a call of the *at() forms; `dirfd` itself with AT_EMPTY_PATH. */
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

/* change_end - ends the call, and marks again: the path may have led elsewhere meanwhile. */
int change_end(struct changing *c, int result)
{
    const struct segments *seg = result == 0 && c->given ? attach_for_marking() : NULL;
    struct stat st;
    if (c->held >= 0)
        sys_close(c->held);
    else if (seg && object_at(c->dirfd, c->given, c->follow, &st))
        invalidate_object(seg, c->dirfd, c->given, &st, c->change);
    return result;
}
