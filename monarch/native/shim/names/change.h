/* change.h - calls that change the target of a path or descriptor: marked before and after, and led
 * to the origin's file if the target is a Replica. */
#ifndef MONARCH_CHANGE_H
#define MONARCH_CHANGE_H

#include <fcntl.h>

#include "shim/names/mark.h"
#include "shim/base/sys.h"

struct changing {
    const char *path; /* the path for the call; NULL: the descriptor itself */
    int dirfd;
    const char *given;
    enum change change;
    bool follow;
    int held; /* the origin's file behind a Replica, else -1 */
    char name[FD_NAME_BYTES];
};

bool change_path(struct changing *c, int dirfd, const char *path, enum change change);
bool change_link(struct changing *c, int dirfd, const char *path, enum change change);
bool change_descriptor(struct changing *c, int fd, enum change change);
bool change_at(struct changing *c, int dirfd, const char *path, int flags,
               enum change change);
int change_end(struct changing *c, int result);

/* change_flags - returns the flags of an *at() call: a link names a target that is led
 * elsewhere. */
static inline int change_flags(const struct changing *c, int flags)
{
    return c->held >= 0 ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
}

/* A function that follows links, in one line: `call` names c.path. */
#define CHANGE(at, given, change, call) \
    struct changing c;                  \
    return change_path(&c, at, given, change) ? change_end(&c, call) : -1;

/* The same for a link itself. */
#define CHANGE_LINK(at, given, change, call) \
    struct changing c;                       \
    return change_link(&c, at, given, change) ? change_end(&c, call) : -1;

/* The same for a descriptor: `named` if that is redirected, else `call`. */
#define CHANGE_FD(fd, change, named, call)                 \
    struct changing c;                                     \
    return change_descriptor(&c, fd, change)               \
               ? change_end(&c, c.path ? (named) : (call)) \
               : -1;

#endif
