/* change.h - a call that changes what a path or descriptor leads to: marked before and
 * after, and led to the origin's file where that is a Replica. */
#ifndef MONARCH_CHANGE_H
#define MONARCH_CHANGE_H

#include <fcntl.h>

#include "shim/names/mark.h"
#include "shim/base/sys.h"

struct changing {
    const char *path; /* what the call has to name; NULL: the descriptor itself */
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

/* change_flags - those of an *at() call: what is led elsewhere is named by a link. */
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

/* The same for a descriptor: `named` where that is redirected, else `call`. */
#define CHANGE_FD(fd, change, named, call)                 \
    struct changing c;                                     \
    return change_descriptor(&c, fd, change)               \
               ? change_end(&c, c.path ? (named) : (call)) \
               : -1;

#endif
