/* invalidate.c - finds the files that a call changes: by the text of its path, and by the identity
 * of the path's target, of the directory that holds its last name, and of directories and links
 * above the roots. */
#include "shim/names/invalidate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/vfs.h>

#include "shim/names/identity.h"
#include "shim/names/mounts.h"
#include "shim/base/object.h"
#include "shared/mountinfo.h"
#include "shim/base/sys.h"

/* last_name - returns the length of a path before its last name. */
static size_t last_name(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return n;
}

/* enter - opens the first directories of a path that is too long for one piece, as many as fit;
 * returns the descriptor, to which the rest of the path is relative, or -1. */
static int enter(int dirfd, const char **path, char *piece)
{
    size_t n = PATH_BYTES_MAX - 1;
    while (n > 0 && (*path)[n] != '/')
        n--;
    if (n == 0)
        return -1;
    memcpy(piece, *path, n);
    piece[n] = 0;
    *path += n;
    *path += strspn(*path, "/");
    int fd = sys_openat(dirfd, piece, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : fd;
}

/* stat_holder - looks at the directory that holds the last name of a path. */
static bool stat_holder(int dirfd, const char *path, struct stat *out)
{
    SCRATCH(holder);
    int at = dirfd;
    bool found = holder;
    while (found && last_name(path) >= PATH_BYTES_MAX) {
        int next = enter(at, &path, holder);
        if (at != dirfd)
            sys_close(at);
        found = next >= 0;
        at = found ? next : dirfd;
    }
    if (found) {
        size_t n = last_name(path);
        memcpy(holder, n ? path : ".", n ? n : 1);
        holder[n ? n : 1] = 0;
        found = object_at(at, holder, true, out);
    }
    if (at != dirfd)
        sys_close(at);
    return found;
}

/* invalidate_holder - marks a path whose text names no root, by the identity of the directory that
 * holds its last name. */
static void invalidate_holder(const struct segments *seg, int dirfd, const char *path,
                              enum change change)
{
    struct stat st;
    uint32_t root, directory;
    if (!stat_holder(dirfd, path, &st))
        return;
    if (seg->changes) /* its times show that a name is added or removed */
        mark_object(seg, &st, CHANGE_TIMES);
    if (!route_directory(seg, st.st_dev, st.st_ino, &root, &directory))
        return;
    ROUTE(r);
    enum where where = route_below(seg, root, directory, path + last_name(path), &r);
    mark_route(seg, &r, where, change, false);
}

/* Directories and links that were above the roots, as this process saw them before it changed its
 * view of the file system. */
static struct {
    uint64_t dev, ino;
    uint32_t root;
} above[64];

static _Atomic uint32_t above_count;

/* remember_above - stores one more; without room for it, it is found by its path, while that leads
 * there. */
static void remember_above(const struct stat *st, uint32_t root)
{
    uint32_t n = atomic_load_explicit(&above_count, memory_order_acquire);
    if (n == sizeof(above) / sizeof(above[0]))
        return;
    above[n].dev = st->st_dev;
    above[n].ino = st->st_ino;
    above[n].root = root;
    atomic_store_explicit(&above_count, n + 1, memory_order_release);
}

/* leads - the spelling of a root leads to it in this process, or its identity is unknown. */
static bool leads(const struct segments *seg, const struct spelling *s,
                  const char *path)
{
    const struct root *root = &seg->catalog->roots[s->root];
    struct stat st;
    return root->ino == 0 || (object_at(AT_FDCWD, path, true, &st) &&
                              st.st_dev == root->dev && st.st_ino == root->ino);
}

/* listed - the agent has found this above the root. */
static bool listed(const struct segments *seg, uint32_t root, const struct stat *st)
{
    const struct catalog *c = seg->catalog;
    const struct above *all = (const struct above *)((const char *)c + c->above);
    for (uint64_t i = 0; i < c->above_count; i++)
        if (all[i].root == root && all[i].dev == st->st_dev &&
            (all[i].ino == 0 || all[i].ino == st->st_ino))
            return true;
    return false;
}

/* stands_above - one of the directories and links in a spelling of a root is this one; with NULL,
 * they are stored. If a mount hides the root from this process, only those that the agent has found
 * count: the rest are the mount's own. */
static bool stands_above(const struct segments *seg, const struct spelling *s,
                         const struct stat *st)
{
    SCRATCH(path);
    struct stat now;
    if (!path || s->bytes >= PATH_BYTES_MAX)
        return false;
    memcpy(path, s->path, s->bytes);
    path[s->bytes] = 0;
    bool seen = leads(seg, s, path);
    for (char *end = path + s->bytes; end; end = strrchr(path + 1, '/')) {
        *end = 0;
        if (!object_at(AT_FDCWD, path, false, &now) ||
            !(seen || listed(seg, s->root, &now)))
            continue;
        if (!st)
            remember_above(&now, s->root);
        else if (object_same(&now, st))
            return true;
    }
    return false;
}

/* invalidate_view - stores the directories and links above the roots before this process changes
 * its view of the file system: they may have no path in it any more. */
void invalidate_view(const struct segments *seg)
{
    for (uint32_t i = 0; seg && i < seg->spelling_count; i++)
        stands_above(seg, &seg->spellings[i], NULL);
}

/* invalidate_above - marks the roots below a directory or link that is renamed, replaced or closed
 * to us, however the path is spelled. */
static void invalidate_above(const struct segments *seg, const struct stat *st)
{
    uint32_t n = atomic_load_explicit(&above_count, memory_order_acquire);
    for (uint32_t i = 0; i < seg->spelling_count; i++)
        if (stands_above(seg, &seg->spellings[i], st))
            mark_root(seg, seg->spellings[i].root, MARKED | MARKED_NAME);
    for (uint32_t i = 0; i < n; i++)
        if (above[i].dev == st->st_dev && above[i].ino == st->st_ino)
            mark_root(seg, above[i].root, MARKED | MARKED_NAME);
}

/* untold - the kernel's path of a file or directory may hide that it lies in a root: it has
 * other names, or is seen through another mount of the same file system. */
static bool untold(const struct segments *seg, uint32_t root, int fd,
                   const struct stat *st)
{
    bool several = S_ISREG(st->st_mode) && st->st_nlink > 1;
    return (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) &&
           st->st_dev == seg->catalog->roots[root].dev &&
           (several || mounts_apart(seg, root, fd, ""));
}

/* nameless - the same if the kernel reports no path, as in a sandbox without /proc: any file on a
 * file system with unstable inode numbers may lie in a root. */
static bool nameless(int fd, const struct stat *st)
{
    struct statfs fs;
    return S_ISREG(st->st_mode) && (sys_call(SYS_fstatfs, fd, (long)&fs, 0, 0, 0) < 0 ||
                                    mountinfo_unstable(&fs));
}

/* invalidate_name_of - marks a file with an unstable inode number by the kernel's path of a
 * descriptor. If that path does not decide, marks the whole root. */
static void invalidate_name_of(const struct segments *seg, int fd,
                               const struct stat *st, enum change change)
{
    char name[FD_NAME_BYTES];
    SCRATCH(path);
    sys_fd_name(name, fd);
    long n = path ? sys_readlink(name, path, PATH_BYTES_MAX - 1) : 0;
    if (n > 0) {
        ROUTE(r);
        path[n] = 0;
        enum where where = route_at(seg, AT_FDCWD, path, &r);
        mark_route(seg, &r, where, change, true);
        if (where == ROUTE_OUTSIDE)
            invalidate_holder(seg, AT_FDCWD, path, change);
        if (where == ROUTE_UNKNOWN)
            mark_below(seg, r.root, st, change);
        if (where == ROUTE_FOUND || (where == ROUTE_UNKNOWN && seg->changes))
            return;
    }
    for (uint32_t i = 0; i < seg->catalog->root_count; i++)
        if (seg->catalog->roots[i].unstable &&
            (n > 0 ? untold(seg, i, fd, st) : nameless(fd, st)))
            mark_root(seg, i, MARKED_ALL);
}

/* invalidate_near - marks each root on the device with unstable inode numbers: the changed file is
 * unknown, and may be in any of them. */
static void invalidate_near(const struct segments *seg, const struct stat *st)
{
    for (uint32_t i = 0; i < seg->catalog->root_count; i++)
        if (seg->catalog->roots[i].unstable && st->st_dev == seg->catalog->roots[i].dev)
            mark_root(seg, i, MARKED_ALL);
}

/* unstable - a root lies on a file system where files may change their inode numbers. */
static bool unstable(const struct segments *seg)
{
    for (uint32_t i = 0; i < seg->catalog->root_count; i++)
        if (seg->catalog->roots[i].unstable)
            return true;
    return false;
}

/* file_of - returns the File of a root that has this identity, and its number; NULL: none. */
static const struct entry *file_of(const struct segments *seg, uint32_t root,
                                   const struct stat *st, uint64_t *file)
{
    const struct index *ix = segments_index(seg, root);
    int64_t found = index_find_inode(ix, st->st_dev, st->st_ino);
    const struct entry *e = found < 0 ? NULL : index_entry(ix, (uint32_t)found);
    if (!e || e->file == NONE32 || !S_ISREG(index_attr(ix, e)->mode))
        return NULL;
    *file = file_number(&seg->catalog->roots[root], e);
    return e;
}

/* reborn - a new file has the inode number of a File that has lost a name: the bytes of the new
 * file change. If this is unknown, the file is taken for the File. */
static bool reborn(const struct segments *seg, int dirfd, const char *path,
                   const struct stat *st)
{
    for (uint32_t i = 0; i < seg->catalog->root_count; i++) {
        uint64_t file;
        const struct entry *e = file_of(seg, i, st, &file);
        if (!e || !(mark_of(seg, i, file) & MARKED_NAME) ||
            seg->catalog->roots[i].unstable || /* overlays copy changed files */
            object_birth(dirfd, path, e->ctime_ns) != BIRTH_AFTER)
            continue;
        mark_freed(seg, file);
        return true;
    }
    return false;
}

/* invalidate_freed - marks a file that has lost its last name: its inode number is free for files
 * that this process does not see, and a descriptor must not share it with them. */
void invalidate_freed(const struct segments *seg, const struct stat *st)
{
    if (!seg)
        return;
    if (seg->changes)
        mark_freed_object(seg, st);
    for (uint32_t i = 0; i < seg->catalog->root_count; i++) {
        uint64_t file;
        if (file_of(seg, i, st, &file))
            mark_freed(seg, file);
    }
}

/* invalidate_object - marks by the identity of the target of a path or, without a path, of a
 * descriptor. */
void invalidate_object(const struct segments *seg, int dirfd, const char *path,
                       const struct stat *st, enum change change)
{
    bool leads = S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode);
    if (change == CHANGE_BYTES && reborn(seg, dirfd, path, st))
        change = CHANGE_HINT;
    bool known = mark_object(seg, st, change);
    if (leads && (change == CHANGE_NAME || change == CHANGE_RIGHTS))
        invalidate_above(seg, st); /* it may be above another root */
    if (known || S_ISLNK(st->st_mode) || !unstable(seg))
        return;
    int fd = path ? sys_openat(dirfd, path, O_PATH | O_CLOEXEC) : dirfd;
    if (fd < 0) {
        if (fd != -ENOENT && fd != -ENOTDIR)
            invalidate_near(seg, st);
        return;
    }
    invalidate_name_of(seg, fd, st, change);
    if (path)
        sys_close(fd);
}

/* invalidate_new - marks the directory of a file that an open has created, perhaps at the end of a
 * link: its times show the file. */
void invalidate_new(const struct segments *seg, int fd, const struct stat *st)
{
    char name[FD_NAME_BYTES];
    bool near = seg->leaves; /* to other file systems as well */
    for (uint32_t i = 0; i < seg->catalog->root_count; i++)
        near = near || changes_near(seg->catalog, i, st->st_dev);
    if (!near || !object_new(fd))
        return;
    SCRATCH(path);
    sys_fd_name(name, fd);
    long n = path ? sys_readlink(name, path, PATH_BYTES_MAX - 1) : 0;
    if (n <= 0)
        return;
    path[n] = 0;
    invalidate_holder(seg, AT_FDCWD, path, CHANGE_CREATE);
}

/* invalidate_descriptor - marks the target of a descriptor, whatever spelling, link or mount led to
 * it. */
void invalidate_descriptor(const struct segments *seg, int fd, enum change change)
{
    struct stat st;
    uint64_t file;
    if (!object_of(fd, &st))
        return;
    /* A truncated Replica does not look like one any more: it must not be served. */
    if (identity_inode(seg, &st, &file))
        mark_file(seg, file, change);
    else
        invalidate_object(seg, fd, NULL, &st, change);
}

/* invalidate_path - marks the file that a call by path is about to change. */
void invalidate_path(const struct segments *seg, int dirfd, const char *path,
                     enum change change, bool follow)
{
    struct stat st;
    if (!seg || !path || !path[0])
        return;
    ROUTE(r);
    enum where where = route_at(seg, dirfd, path, &r);
    mark_route(seg, &r, where, change, follow);
    if (change != CHANGE_CREATE && object_at(dirfd, path, follow, &st))
        invalidate_object(seg, dirfd, path, &st, change);
    if (where != ROUTE_FOUND && (change == CHANGE_NAME || change == CHANGE_CREATE))
        invalidate_holder(seg, dirfd, path, change);
}

/* invalidate_gone - marks a name that was removed, or leads elsewhere now, in the directory that
 * its path leads to after the call. */
void invalidate_gone(const struct segments *seg, int dirfd, const char *path,
                     int result)
{
    if (result != 0 || !seg || !path)
        return;
    ROUTE(r);
    enum where where = route_at(seg, dirfd, path, &r);
    mark_route(seg, &r, where, CHANGE_NAME, false);
    if (where != ROUTE_FOUND)
        invalidate_holder(seg, dirfd, path, CHANGE_NAME);
}

/* invalidate_created - marks a created name. One in the Catalog cannot be created while it exists;
 * if it was, the Catalog is wrong about it. Others show in the times of the directory that the path
 * leads to after the call. */
void invalidate_created(const struct segments *seg, int dirfd, const char *path,
                        int result)
{
    if (result != 0 || !seg || !path)
        return;
    ROUTE(r);
    enum where where = route_at(seg, dirfd, path, &r);
    if (where == ROUTE_FOUND)
        mark_route(seg, &r, where, CHANGE_NAME, false);
    else
        invalidate_holder(seg, dirfd, path, CHANGE_CREATE);
}
