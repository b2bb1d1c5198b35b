/* identity.c - finds the origin's File of a descriptor or name of a Replica. */
#include "shim/names/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "shim/names/mark.h"
#include "shim/base/object.h"
#include "shim/base/scratch.h"
#include "shim/base/sys.h"

enum { COARSE_SECONDS = 2 }; /* the coarsest time stamps that file systems keep */

static void set_time(struct timespec *out, int64_t ns)
{
    int64_t second = 1000000000;
    int64_t rest = ns % second;
    out->tv_sec = ns / second - (rest < 0);
    out->tv_nsec = rest < 0 ? rest + second : rest;
}

/* identity_stat - fills in the origin's own lstat(); st_blocks stays if the Catalog does not hold
 * it. */
void identity_stat(const struct index *ix, const struct entry *e, struct stat *out)
{
    const struct attr *a = index_attr(ix, e);
    out->st_dev = a->dev;
    out->st_ino = e->ino;
    out->st_mode = a->mode;
    out->st_nlink = a->nlink;
    out->st_uid = a->uid;
    out->st_gid = a->gid;
    out->st_size = (off_t)e->size;
    out->st_blksize = a->blksize;
    if (e->blocks != NONE32)
        out->st_blocks = e->blocks;
    set_time(&out->st_atim, e->atime_ns);
    set_time(&out->st_mtim, e->mtime_ns);
    set_time(&out->st_ctim, e->ctime_ns);
}

/* root_of - returns the root in whose range a File's number lies. */
static uint32_t root_of(const struct catalog *c, uint64_t file)
{
    uint32_t best = NONE32;
    for (uint32_t i = 0; i < c->root_count; i++)
        if (c->roots[i].file_base <= file &&
            (best == NONE32 || c->roots[i].file_base >= c->roots[best].file_base))
            best = i;
    return best;
}

/* resembles - a Replica, known by its mode, has its File's size and, as far as the Tier's file
 * system keeps it, its time. If Replicas were removed behind the agent's back, files of the program
 * may have their inodes on a disk: those must not be taken for Replicas. */
static bool resembles(const struct stat *st, const struct entry *e)
{
    struct timespec mtime;
    set_time(&mtime, e->mtime_ns);
    time_t apart = st->st_mtim.tv_sec - mtime.tv_sec;
    return (uint64_t)st->st_size == e->size && apart >= -COARSE_SECONDS &&
           apart <= COARSE_SECONDS;
}

/* identity_inode - finds the File whose Replica has had this inode, whatever it looks like now;
 * false: none that the agent knows. */
bool identity_inode(const struct segments *seg, const struct stat *st, uint64_t *file)
{
    const struct catalog *c = seg->catalog;
    for (uint32_t t = 0; t < c->tier_count && S_ISREG(st->st_mode); t++) {
        int64_t found = c->tiers[t].dev == st->st_dev
                            ? replica_find(seg->inodes, t, st->st_ino)
                            : -1;
        if (found < 0)
            continue;
        *file = (uint64_t)found;
        return true;
    }
    return false;
}

/* known_to - the stat is that of a Replica in these segments. */
static bool known_to(const struct segments *seg, const struct stat *st,
                     struct identity *id)
{
    const struct catalog *c = seg->catalog;
    if (st->st_mode != IDENTITY_MODE || !identity_inode(seg, st, &id->file))
        return false; /* most files have another mode: the table is not looked up */
    id->root = root_of(c, id->file);
    if (id->root == NONE32)
        return false;
    id->ix = segments_index(seg, id->root);
    uint64_t number = id->file - c->roots[id->root].file_base;
    if (number >= id->ix->file_count)
        return false;
    id->entry = index_first(id->ix, (uint32_t)number);
    id->seg = seg;
    return resembles(st, id->entry);
}

/* identity_of - a real fstat() has returned a Replica of ours, perhaps of an earlier agent: its
 * File's number means nothing to this one. */
bool identity_of(const struct segments *seg, const struct stat *st, struct identity *id)
{
    for (const struct segments *at = seg; at; at = at->before) {
        if (!known_to(at, st, id))
            continue;
        if (at != seg)
            id->file = UINT64_MAX;
        return true;
    }
    return false;
}

/* identity_path - writes the absolute path of the File at the origin. */
bool identity_path(const struct identity *id, char out[PATH_BYTES_MAX])
{
    return catalog_path(id->seg->catalog, id->root, id->entry, out, PATH_BYTES_MAX) > 0;
}

/* identity_is - a descriptor leads to the File, not to a new file with its inode number: shown by
 * the time of birth, if the file system keeps one, else by the File's names, if none is known to be
 * removed. */
bool identity_is(const struct identity *id, int fd)
{
    struct stat now;
    if (!object_of(fd, &now) || now.st_ino != id->entry->ino ||
        now.st_dev != index_attr(id->ix, id->entry)->dev)
        return false;
    enum birth birth = object_birth(fd, NULL, id->entry->ctime_ns);
    if (birth == BIRTH_AFTER && id->seg->catalog->roots[id->root].unstable)
        birth = BIRTH_UNTOLD; /* an overlay copies a file that is changed */
    return birth == BIRTH_BEFORE ||
           (birth == BIRTH_UNTOLD &&
            !(mark_of(id->seg, id->root, id->file) & MARKED_NAME));
}

static bool is_link(const struct index *ix, const struct entry *e)
{
    return S_ISLNK(index_attr(ix, e)->mode);
}

/* hold_name - returns an O_PATH descriptor of the File by the path of this Entry, and that path;
 * IDENTITY_GONE: the File has lost this name. */
static int hold_name(const struct identity *id, const struct entry *name, char *path)
{
    struct identity named = *id;
    named.entry = name;
    bool follow = index_is_outer(id->ix, name) || is_link(id->ix, name);
    int flags = follow ? 0 : O_NOFOLLOW;
    int fd = identity_path(&named, path) ? object_hold(AT_FDCWD, path, flags)
                                         : IDENTITY_GONE;
    if (fd < 0)
        return IDENTITY_GONE;
    if (identity_is(id, fd))
        return fd;
    sys_close(fd);
    return IDENTITY_GONE;
}

/* names - the Entry is another name of the File. */
static bool names(const struct identity *id, const struct entry *e)
{
    return e->file == id->entry->file && S_ISREG(index_attr(id->ix, e)->mode);
}

/* leads_to - the Entry is a link to the File. A File without a name in the dataset may have
 * several, and its Entry has the path of one of them. */
static bool leads_to(const struct identity *id, const struct entry *e)
{
    return is_link(id->ix, e) && e->target < id->ix->entry_count &&
           names(id, index_entry(id->ix, e->target));
}

/* hold_in - does the same by any name that one root has for the File. */
static int hold_in(const struct identity *id, char *path)
{
    int fd = hold_name(id, id->entry, path);
    /* A file of one name may be found behind several links. */
    bool alone = index_attr(id->ix, id->entry)->nlink < 2 && !index_leaves(id->ix);
    if (fd >= 0 || alone)
        return fd;
    for (uint32_t i = 0; fd < 0 && i < id->ix->entry_count; i++) {
        const struct entry *e = index_entry(id->ix, i);
        if (e != id->entry && (names(id, e) || leads_to(id, e)))
            fd = hold_name(id, e, path);
    }
    return fd;
}

/* hold_at - does the same by any name that the Catalog has for the File: names of one File in
 * several roots belong to the first of these. */
static int hold_at(const struct identity *id, char *path)
{
    const struct catalog *c = id->seg->catalog;
    uint64_t dev = index_attr(id->ix, id->entry)->dev;
    int fd = hold_in(id, path);
    for (uint32_t i = 0; fd < 0 && i < c->root_count; i++) {
        struct identity other = *id;
        other.root = i;
        other.ix = segments_index(id->seg, i);
        int64_t found = index_find_inode(other.ix, dev, id->entry->ino);
        if (i == id->root || found < 0)
            continue;
        other.entry = index_entry(other.ix, (uint32_t)found);
        fd = hold_in(&other, path);
    }
    return fd;
}

static int hold(const struct identity *id)
{
    SCRATCH(path);
    return path ? hold_at(id, path) : IDENTITY_GONE;
}

/* find_origin - writes a path of the File at the origin, if it still has one of its names. */
static bool find_origin(const struct identity *id, char *out)
{
    int fd = hold_at(id, out);
    if (fd >= 0)
        sys_close(fd);
    return fd >= 0;
}

/* freed - the inode number of a File that no longer exists is that of other files, or may become
 * that: its last name was removed, or a new file has its name. */
static bool freed(const struct identity *id)
{
    SCRATCH(path);
    struct stat now;
    bool follow = index_is_outer(id->ix, id->entry);
    if (mark_of(id->seg, id->root, id->file) & MARKED_FREED)
        return true;
    return path && identity_path(id, path) && object_at(AT_FDCWD, path, follow, &now) &&
           now.st_ino == id->entry->ino &&
           now.st_dev == index_attr(id->ix, id->entry)->dev;
}

/* take_changes - fills in the current metadata of a marked File; size and blocks stay those of the
 * bytes that the descriptor reads. */
static void take_changes(const struct identity *id, const struct stat *replica,
                         struct stat *out)
{
    struct stat now;
    int fd = hold(id);
    if (fd < 0 && freed(id)) {
        /* Programs that compare must not take the two for the same. */
        out->st_dev = replica->st_dev;
        out->st_ino = replica->st_ino;
        out->st_nlink = 0;
    }
    if (fd < 0)
        return;
    if (sys_fstat(fd, &now) == 0) {
        now.st_size = out->st_size;
        now.st_blocks = out->st_blocks;
        *out = now;
    }
    sys_close(fd);
}

/* identity_describe - fills in the fstat() of a redirected descriptor. */
void identity_describe(const struct identity *id, struct stat *out)
{
    const struct stat replica = *out;
    identity_stat(id->ix, id->entry, out);
    if (__builtin_expect(mark_seen(id->seg, id->root, id->ix, id->entry), 0) ||
        __builtin_expect(segments_superseded(id->seg), 0))
        take_changes(id, &replica, out);
}

/* identity_origin_of_fd - writes the origin's path of a redirected descriptor; false also if that
 * path is no longer the File's: calls on the descriptor then affect only the Replica, which is not
 * served again. */
bool identity_origin_of_fd(const struct segments *seg, int fd, char out[PATH_BYTES_MAX],
                           uint64_t *file)
{
    struct identity id;
    struct stat st;
    if (!seg || !object_of(fd, &st) || !identity_of(seg, &st, &id) ||
        !find_origin(&id, out))
        return false;
    *file = id.file;
    return true;
}

/* identity_origin_of_path - writes the origin's path of a name that leads to a Replica, such as
 * /proc/self/fd/3. */
bool identity_origin_of_path(const struct segments *seg, int dirfd, const char *path,
                             char out[PATH_BYTES_MAX], uint64_t *file)
{
    struct identity id;
    struct stat st;
    if (!object_at(dirfd, path, true, &st) || !identity_of(seg, &st, &id))
        return false;
    *file = id.file;
    return find_origin(&id, out);
}

/* identity_bears - the target of this descriptor has the name of the File's Replica. If Replicas
 * were removed behind the agent's back, files of the program, perhaps copies of the same Files, may
 * have their inodes on a disk: no change of those may reach the origin. */
bool identity_bears(int fd, const struct identity *id)
{
    static const char gone[] = " (deleted)";
    char name[FD_NAME_BYTES], own[REPLICA_NAME_BYTES];
    const struct entry *e = id->entry;
    SCRATCH(path);
    sys_fd_name(name, fd);
    long n = path ? sys_readlink(name, path, PATH_BYTES_MAX) : 0;
    if (n <= 0) /* without /proc it is not known */
        return true;
    long tail = (long)sizeof(gone) - 1;
    if (n > tail && memcmp(path + n - tail, gone, sizeof(gone) - 1) == 0)
        n -= tail;
    replica_name(e, id->seg->catalog->roots[id->root].path_hash,
                 index_hash(index_path(id->ix, e), index_path_bytes(e)), own);
    return n >= REPLICA_NAME_BYTES &&
           memcmp(path + n - REPLICA_NAME_BYTES, own, REPLICA_NAME_BYTES) == 0;
}

/* identity_hold - returns an O_PATH descriptor of the origin's file behind the Replica that `fd`
 * leads to. IDENTITY_OTHER leaves `file` unchanged. */
int identity_hold(const struct segments *seg, int fd, const struct stat *st,
                  uint64_t *file)
{
    struct identity id;
    if (!identity_of(seg, st, &id) || !identity_bears(fd, &id))
        return IDENTITY_OTHER;
    *file = id.file;
    return hold(&id);
}

/* identity_hold_path - does the same for the target of a path through a descriptor's name in /proc.
 * By its name in the Tier, a Replica is Monarch's file, not the origin's: a program that clears a
 * scratch directory must not clear the dataset. */
int identity_hold_path(const struct segments *seg, int dirfd, const char *path,
                       const struct stat *st, uint64_t *file)
{
    struct identity id;
    if (!identity_of(seg, st, &id))
        return IDENTITY_OTHER;
    int fd = object_hold(dirfd, path, 0);
    if (fd < 0) /* out of descriptors, perhaps: nothing may be changed */
        return IDENTITY_TIER;
    int held = identity_hold(seg, fd, st, file);
    sys_close(fd);
    if (held == IDENTITY_OTHER || object_by_descriptor(dirfd, path))
        return held;
    if (held >= 0)
        sys_close(held);
    return IDENTITY_TIER;
}

/* identity_named - the last name of a path is that of a Replica in its Tier. */
bool identity_named(const struct segments *seg, int dirfd, const char *path)
{
    struct stat st;
    uint64_t file;
    if (!object_at(dirfd, path, false, &st) || !S_ISREG(st.st_mode))
        return false;
    int held = identity_hold_path(seg, dirfd, path, &st, &file);
    if (held >= 0)
        sys_close(held);
    return held != IDENTITY_OTHER;
}

/* identity_error - returns the errno of a change that a Replica prevents. */
int identity_error(int held)
{
    return held == IDENTITY_TIER ? EROFS : ESTALE;
}

/* identity_hold_fd - does the same as identity_hold() for a redirected descriptor. */
int identity_hold_fd(const struct segments *seg, int fd)
{
    struct stat st;
    uint64_t file;
    return seg && object_of(fd, &st) ? identity_hold(seg, fd, &st, &file)
                                     : IDENTITY_OTHER;
}
