/* change.c - mode, owner, length and extended attributes of the origin's files. */
#include <errno.h>

#include "change.h"
#include "identity.h"
#include "next.h"

/* change_path - what a call that follows links really has to name: the origin's file
 * when the path leads to a Replica; marks it. */
const char *change_path(char out[PATH_BYTES_MAX], int dirfd, const char *path,
                        enum change change)
{
    const struct board *b = path ? board_enter() : NULL;
    uint64_t file;
    if (b && identity_origin_of_path(b, dirfd, path, out, &file)) {
        mark_file(b, file);
        return out;
    }
    mark_path(dirfd, path, change, true);
    return path;
}

/* change_descriptor - the origin's path behind a redirected descriptor, else NULL;
 * marks what the descriptor leads to. */
const char *change_descriptor(char out[PATH_BYTES_MAX], int fd, enum change change)
{
    const struct board *b = board_enter();
    uint64_t file;
    if (!b)
        return NULL;
    if (identity_origin_of_fd(fd, out, &file)) {
        mark_file(b, file);
        return out;
    }
    mark_descriptor(b, fd, change);
    return NULL;
}

int chmod(const char *path, mode_t mode)
{
    char other[PATH_BYTES_MAX];
    return NEXT(chmod)(change_path(other, AT_FDCWD, path, CHANGE_RIGHTS), mode);
}

int lchmod(const char *path, mode_t mode)
{
    mark_path(AT_FDCWD, path, CHANGE_RIGHTS, false);
    return NEXT(lchmod)(path, mode);
}

int fchmod(int fd, mode_t mode)
{
    char other[PATH_BYTES_MAX];
    const char *origin = change_descriptor(other, fd, CHANGE_RIGHTS);
    return origin ? NEXT(chmod)(origin, mode) : NEXT(fchmod)(fd, mode);
}

/* at_path - the same for the *at() forms; `dirfd` itself with AT_EMPTY_PATH. */
static const char *at_path(char out[PATH_BYTES_MAX], int dirfd, const char *path,
                           int flags)
{
    if (path && !path[0] && (flags & AT_EMPTY_PATH)) {
        const char *origin = change_descriptor(out, dirfd, CHANGE_RIGHTS);
        return origin ? origin : path;
    }
    if (flags & AT_SYMLINK_NOFOLLOW) {
        mark_path(dirfd, path, CHANGE_RIGHTS, false);
        return path;
    }
    return change_path(out, dirfd, path, CHANGE_RIGHTS);
}

int fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
    char other[PATH_BYTES_MAX];
    const char *named = at_path(other, dirfd, path, flags);
    return NEXT(fchmodat)(dirfd, named, mode, flags);
}

int chown(const char *path, uid_t uid, gid_t gid)
{
    char other[PATH_BYTES_MAX];
    return NEXT(chown)(change_path(other, AT_FDCWD, path, CHANGE_RIGHTS), uid, gid);
}

int lchown(const char *path, uid_t uid, gid_t gid)
{
    mark_path(AT_FDCWD, path, CHANGE_RIGHTS, false);
    return NEXT(lchown)(path, uid, gid);
}

int fchown(int fd, uid_t uid, gid_t gid)
{
    char other[PATH_BYTES_MAX];
    const char *origin = change_descriptor(other, fd, CHANGE_RIGHTS);
    return origin ? NEXT(chown)(origin, uid, gid) : NEXT(fchown)(fd, uid, gid);
}

int fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags)
{
    char other[PATH_BYTES_MAX];
    const char *named = at_path(other, dirfd, path, flags);
    return NEXT(fchownat)(dirfd, named, uid, gid, flags);
}

int truncate(const char *path, off_t length)
{
    char other[PATH_BYTES_MAX];
    return NEXT(truncate)(change_path(other, AT_FDCWD, path, CHANGE_BYTES), length);
}

int truncate64(const char *path, off64_t length)
{
    char other[PATH_BYTES_MAX];
    return NEXT(truncate64)(change_path(other, AT_FDCWD, path, CHANGE_BYTES), length);
}
