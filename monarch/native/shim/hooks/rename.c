/* rename.c - creates, removes and renames names: marked before the call, or when it succeeded. */
#include <errno.h>
#include <fcntl.h>

#include "shim/names/change.h"
#include "shim/names/identity.h"
#include "shim/base/next.h"
#include "shim/base/object.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"

/* refuses - the call would put another file under a Replica's name in its Tier. Removing a Replica
 * is allowed: its File is then read from the origin. */
static bool refuses(int dirfd, const char *path)
{
    const struct segments *seg = path ? attach_for_marking() : NULL;
    if (!seg || !identity_named(seg, dirfd, path))
        return false;
    errno = identity_error(IDENTITY_TIER);
    return true;
}

struct named { /* the file of a name before the call; mode 0: none */
    struct stat st;
    int fd; /* of a file that has other names, too; below 0: none */
};

/* look - finds a name's file. Holds none with one name: NFS would rename, not remove it. */
static struct named look(int dirfd, const char *path)
{
    struct named n = {.fd = -1};
    if (!object_at(dirfd, path, false, &n.st))
        n.st.st_mode = 0;
    else if (S_ISREG(n.st.st_mode) && n.st.st_nlink > 1)
        n.fd = object_hold(dirfd, path, O_NOFOLLOW);
    return n;
}

/* lost - counts a name that the call has removed. If the file had more, another process may remove
 * those at the same moment: the descriptor has the current link count. */
static void lost(struct named *n)
{
    if (n->fd < 0)
        n->st.st_nlink--;
    else if (!object_of(n->fd, &n->st))
        return;
    if (n->st.st_nlink == 0)
        invalidate_freed(attach_for_marking(), &n->st);
}

/* leave - ends look() after the call; `taken`: it removed the name. */
static void leave(struct named *n, bool taken)
{
    if (taken && S_ISREG(n->st.st_mode))
        lost(n);
    if (n->fd >= 0)
        sys_close(n->fd);
}

/* A removed name is marked before the call, and after it, because a link on the way to it may lead
 * elsewhere by then. A directory is not removed in this way, and its mark would be one of its whole
 * root. */
#define GONE(at, path, call)                                                 \
    struct named gone = look(at, path);                                      \
    if (!S_ISDIR(gone.st.st_mode))                                           \
        invalidate_path(attach_for_marking(), at, path, CHANGE_NAME, false); \
    int result = call;                                                       \
    invalidate_gone(attach_for_marking(), at, path, result);                 \
    leave(&gone, result == 0);                                               \
    return result;

/* moves - the call may succeed in the current state: programs try to move a file to the name of a
 * directory before they move it into that. */
static bool moves(const struct stat *from, const struct stat *to, unsigned flags)
{
    if ((flags & RENAME_EXCHANGE) || !to->st_mode)
        return true;
    return !(flags & RENAME_NOREPLACE) &&
           (bool)S_ISDIR(from->st_mode) == (bool)S_ISDIR(to->st_mode);
}

/* Two names: the first is removed and the second replaced. */
#define MOVES(from_at, from, to_at, to, flags, call)                              \
    if (refuses(from_at, from) || refuses(to_at, to))                             \
        return -1;                                                                \
    struct named first = look(from_at, from);                                     \
    struct named second = look(to_at, to);                                        \
    if (moves(&first.st, &second.st, flags)) {                                    \
        invalidate_path(attach_for_marking(), from_at, from, CHANGE_NAME, false); \
        invalidate_path(attach_for_marking(), to_at, to, CHANGE_NAME, false);     \
    }                                                                             \
    int result = call;                                                            \
    invalidate_gone(attach_for_marking(), from_at, from, result);                 \
    invalidate_gone(attach_for_marking(), to_at, to, result);                     \
    leave(&first, false);                                                         \
    leave(&second, result == 0 && !((flags)&RENAME_EXCHANGE) &&                   \
                       !object_same(&first.st, &second.st));                      \
    return result;

/* A directory that is not empty stays, and nothing changes: programs try. */
#define EMPTIED(at, path, call)                                            \
    struct stat before;                                                    \
    const struct segments *seg = attach_for_marking();                     \
    bool there = seg && object_at(at, path, false, &before);               \
    invalidate_path(attach_for_marking(), at, path, CHANGE_CREATE, false); \
    int result = call;                                                     \
    invalidate_gone(attach_for_marking(), at, path, result);               \
    if (result == 0 && there)                                              \
        invalidate_object(seg, at, path, &before, CHANGE_NAME);            \
    return result;

/* A new name marks its directory before, and the Entry that the Catalog had there after. */
#define COMES(at, path, call)                                              \
    invalidate_path(attach_for_marking(), at, path, CHANGE_CREATE, false); \
    int result = call;                                                     \
    invalidate_created(attach_for_marking(), at, path, result);            \
    return result;

int rename(const char *from, const char *to)
{
    MOVES(AT_FDCWD, from, AT_FDCWD, to, 0, NEXT(rename)(from, to))
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    MOVES(from_fd, from, to_fd, to, 0, NEXT(renameat)(from_fd, from, to_fd, to))
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    MOVES(from_fd, from, to_fd, to, flags,
          NEXT(renameat2)(from_fd, from, to_fd, to, flags))
}

int unlink(const char *path)
{
    GONE(AT_FDCWD, path, NEXT(unlink)(path))
}

int unlinkat(int dirfd, const char *path, int flags)
{
    if (flags & AT_REMOVEDIR) {
        EMPTIED(dirfd, path, NEXT(unlinkat)(dirfd, path, flags))
    }
    GONE(dirfd, path, NEXT(unlinkat)(dirfd, path, flags))
}

int rmdir(const char *path)
{
    EMPTIED(AT_FDCWD, path, NEXT(rmdir)(path))
}

int remove(const char *path)
{
    struct stat st;
    if (object_at(AT_FDCWD, path, false, &st) && S_ISDIR(st.st_mode)) {
        EMPTIED(AT_FDCWD, path, NEXT(remove)(path))
    }
    GONE(AT_FDCWD, path, NEXT(remove)(path))
}

/* The old name gains a link: its metadata changes. */
int link(const char *from, const char *to)
{
    struct changing c;
    if (!change_link(&c, AT_FDCWD, from, CHANGE_RIGHTS))
        return -1;
    invalidate_path(attach_for_marking(), AT_FDCWD, to, CHANGE_CREATE, false);
    int result = change_end(&c, NEXT(link)(from, to));
    invalidate_created(attach_for_marking(), AT_FDCWD, to, result);
    return result;
}

/* link_from - prepares a link to the target of a path or descriptor, which may be a Replica;
 * returns the flags that the call then needs, or -1: it fails. */
static int link_from(struct changing *c, int fd, const char *from, int flags)
{
    bool follows = flags & AT_SYMLINK_FOLLOW;
    bool itself = from && !from[0] && (flags & AT_EMPTY_PATH);
    if (!follows && !itself)
        return change_link(c, fd, from, CHANGE_RIGHTS) ? flags : -1;
    if (itself ? !change_at(c, fd, from, AT_EMPTY_PATH, CHANGE_RIGHTS)
               : !change_path(c, fd, from, CHANGE_RIGHTS))
        return -1;
    return c->held >= 0 ? AT_SYMLINK_FOLLOW : flags;
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    struct changing c;
    int how = link_from(&c, from_fd, from, flags);
    if (how < 0)
        return -1;
    invalidate_path(attach_for_marking(), to_fd, to, CHANGE_CREATE, false);
    int result = change_end(&c, NEXT(linkat)(from_fd, c.path, to_fd, to, how));
    invalidate_created(attach_for_marking(), to_fd, to, result);
    return result;
}

int symlink(const char *target, const char *path)
{
    COMES(AT_FDCWD, path, NEXT(symlink)(target, path))
}

int symlinkat(const char *target, int dirfd, const char *path)
{
    COMES(dirfd, path, NEXT(symlinkat)(target, dirfd, path))
}

int mkdir(const char *path, mode_t mode)
{
    COMES(AT_FDCWD, path, NEXT(mkdir)(path, mode))
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    COMES(dirfd, path, NEXT(mkdirat)(dirfd, path, mode))
}

int mkfifo(const char *path, mode_t mode)
{
    COMES(AT_FDCWD, path, NEXT(mkfifo)(path, mode))
}

int mkfifoat(int dirfd, const char *path, mode_t mode)
{
    COMES(dirfd, path, NEXT(mkfifoat)(dirfd, path, mode))
}

int mknod(const char *path, mode_t mode, dev_t dev)
{
    COMES(AT_FDCWD, path, NEXT(mknod)(path, mode, dev))
}

int mknodat(int dirfd, const char *path, mode_t mode, dev_t dev)
{
    COMES(dirfd, path, NEXT(mknodat)(dirfd, path, mode, dev))
}

int __xmknod(int ver, const char *path, mode_t mode, dev_t *dev)
{
    COMES(AT_FDCWD, path, NEXT(__xmknod)(ver, path, mode, dev))
}

int __xmknodat(int ver, int dirfd, const char *path, mode_t mode, dev_t *dev)
{
    COMES(dirfd, path, NEXT(__xmknodat)(ver, dirfd, path, mode, dev))
}
