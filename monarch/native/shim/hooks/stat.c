/* stat.c - metadata by path from the Catalog, and by descriptor under the origin's name. */
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "shim/names/directories.h"
#include "shim/names/identity.h"
#include "shim/names/mark.h"
#include "shim/base/next.h"
#include "shim/base/object.h"
#include "shim/base/process.h"
#include "shim/hooks/stat.h"
#include "shim/base/sys.h"

#if defined(__x86_64__)
enum { STAT_VERSION = 1 }; /* the current struct, in calls by the old names */
#else
enum { STAT_VERSION = 0 };
#endif

static const int STAT_FLAGS = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;

/* answerable - returns the Entry whose metadata is the answer, or NULL to ask the origin. */
static const struct entry *answerable(const struct segments *seg, const struct route *r,
                                      bool follow)
{
    const struct entry *e = route_entry(r);
    if (r->rel_bytes == 0 && !follow && !r->directory_only)
        return NULL; /* the spelling of the root may be a link */
    if (S_ISLNK(index_attr(r->ix, e)->mode) && (follow || r->directory_only)) {
        if (e->target == NONE32)
            return NULL;
        e = index_entry(r->ix, e->target);
    }
    uint32_t mode = index_attr(r->ix, e)->mode;
    if (e->file == NONE32 || (r->directory_only && !S_ISDIR(mode)))
        return NULL;
    /* A directory may have another inode by now, and a change by another name of a file is not
     * marked here. */
    if (seg->catalog->roots[r->root].unstable &&
        (S_ISDIR(mode) ? !directory_unchanged(seg, r->root, r->ix, e)
                       : index_attr(r->ix, e)->nlink > 1))
        return NULL;
    const struct entry *marked = e;
    if (S_ISLNK(mode) && index_attr(r->ix, e)->nlink > 1)
        return NULL; /* its other names are not marked with it */
    if (S_ISREG(mode) && !entry_confirmed(seg->catalog, r->root, e))
        return NULL;
    if (S_ISDIR(mode) && directory_stale(seg, r->root, e))
        return NULL;
    if (S_ISLNK(mode))
        marked = index_entry(r->ix, e->target);
    return mark_seen(seg, r->root, r->ix, marked) ? NULL : e;
}

/* stat_look - returns the Entry for a path, with its route; NULL: the origin must answer, or, if
 * `absent` is set, the name does not exist. */
const struct entry *stat_look(int dirfd, const char *path, bool follow, struct route *r,
                              bool *absent)
{
    const struct segments *seg = attach_for_serving();
    *absent = false;
    if (!seg)
        return NULL;
    enum where where = route_at(seg, dirfd, path, r);
    if (__builtin_expect(where == ROUTE_OUTSIDE, 1))
        return NULL;
    const struct entry *e = where == ROUTE_FOUND ? answerable(seg, r, follow) : NULL;
    *absent = where == ROUTE_UNKNOWN && directory_lacks(seg, r);
    if (!*absent)
        count(e ? COUNTER_stats_answered : COUNTER_stats_origin, 1);
    return e;
}

enum { ASK_ORIGIN = 1 }; /* no result of a stat */

/* from_catalog - fills in a path's stat; returns the result of the call, or ASK_ORIGIN. */
static int from_catalog(int dirfd, const char *path, struct stat *out, bool follow)
{
    ROUTE(r);
    bool absent;
    const struct entry *e = stat_look(dirfd, path, follow, &r, &absent);
    if (absent) {
        errno = ENOENT;
        return -1;
    }
    if (!e || e->blocks == NONE32)
        return ASK_ORIGIN;
    memset(out, 0, sizeof(*out));
    identity_stat(r.ix, e, out);
    return 0;
}

/* Returns the answer of the Catalog, if it has one. */
#define ANSWER(call)          \
    int answer = call;        \
    if (answer != ASK_ORIGIN) \
        return answer;

/* found_replica - a descriptor's stat is that of a Replica. Its metadata is enough here, unless a
 * copy of the File would have the same. */
static bool found_replica(const struct segments *seg, int fd, const struct stat *st,
                          struct identity *id)
{
    if (!identity_of(seg, st, id))
        return false;
    uint32_t mode = index_attr(id->ix, id->entry)->mode;
    return __builtin_expect((mode & 07777) != 0400, 1) || identity_bears(fd, id);
}

/* as_origin - replaces the identity in a redirected descriptor's stat by the origin's. */
static int as_origin(int result, int fd, struct stat *out)
{
    const struct segments *seg = result == 0 && out->st_mode == IDENTITY_MODE
                                     ? attach_for_marking()
                                     : NULL;
    struct identity id;
    if (seg && found_replica(seg, fd, out, &id)) {
        identity_describe(&id, out);
        count(COUNTER_stats_descriptor, 1);
    }
    return result;
}

/* restat_by_proc_name - stats the origin's file, which the name in /proc opens after a write. */
static void restat_by_proc_name(const struct segments *seg, int fd, struct stat *out)
{
    struct stat replica;
    uint64_t file;
    if (!mark_any(seg) || !object_of(fd, &replica))
        return;
    int held = identity_hold(seg, fd, &replica, &file);
    if (held < 0)
        return;
    sys_fstat(held, out);
    sys_close(held);
}

/* named - does both for the target of a path through a descriptor's name in /proc. */
static int named(int result, int dirfd, const char *path, struct stat *out)
{
    const struct segments *seg = result == 0 && out->st_mode == IDENTITY_MODE
                                     ? attach_for_marking()
                                     : NULL;
    struct identity id;
    if (!seg || !identity_of(seg, out, &id) || !object_by_descriptor(dirfd, path))
        return result;
    int fd = object_hold(dirfd, path, 0);
    as_origin(result, fd, out);
    restat_by_proc_name(seg, fd, out);
    if (fd >= 0)
        sys_close(fd);
    return result;
}

/* named_at - does the same for the *at() forms. */
static int named_at(int result, int dirfd, const char *path, struct stat *out,
                    int flags)
{
    if (!path || !path[0])
        return as_origin(result, dirfd, out);
    return flags & AT_SYMLINK_NOFOLLOW ? result : named(result, dirfd, path, out);
}

int stat(const char *path, struct stat *out)
{
    ANSWER(from_catalog(AT_FDCWD, path, out, true))
    return named(NEXT(stat)(path, out), AT_FDCWD, path, out);
}

int stat64(const char *path, struct stat64 *out)
{
    struct stat *st = (struct stat *)out;
    ANSWER(from_catalog(AT_FDCWD, path, st, true))
    return named(NEXT(stat64)(path, out), AT_FDCWD, path, st);
}

int lstat(const char *path, struct stat *out)
{
    ANSWER(from_catalog(AT_FDCWD, path, out, false))
    return NEXT(lstat)(path, out);
}

int lstat64(const char *path, struct stat64 *out)
{
    ANSWER(from_catalog(AT_FDCWD, path, (struct stat *)out, false))
    return NEXT(lstat64)(path, out);
}

/* old_catalog - does the same for the old names, whose struct has a version. */
static int old_catalog(int ver, int dirfd, const char *path, struct stat *out,
                       bool follow)
{
    return ver == STAT_VERSION ? from_catalog(dirfd, path, out, follow) : ASK_ORIGIN;
}

int __xstat(int ver, const char *path, struct stat *out)
{
    ANSWER(old_catalog(ver, AT_FDCWD, path, out, true))
    return named(NEXT(__xstat)(ver, path, out), AT_FDCWD, path, out);
}

int __xstat64(int ver, const char *path, struct stat64 *out)
{
    struct stat *st = (struct stat *)out;
    ANSWER(old_catalog(ver, AT_FDCWD, path, st, true))
    return named(NEXT(__xstat64)(ver, path, out), AT_FDCWD, path, st);
}

int __lxstat(int ver, const char *path, struct stat *out)
{
    ANSWER(old_catalog(ver, AT_FDCWD, path, out, false))
    return NEXT(__lxstat)(ver, path, out);
}

int __lxstat64(int ver, const char *path, struct stat64 *out)
{
    ANSWER(old_catalog(ver, AT_FDCWD, path, (struct stat *)out, false))
    return NEXT(__lxstat64)(ver, path, out);
}

/* at_catalog - does the same for the *at() forms; their other flags are left to the kernel. */
static int at_catalog(int dirfd, const char *path, struct stat *out, int flags)
{
    return flags & ~STAT_FLAGS
               ? ASK_ORIGIN
               : from_catalog(dirfd, path, out, !(flags & AT_SYMLINK_NOFOLLOW));
}

int fstatat(int dirfd, const char *path, struct stat *out, int flags)
{
    ANSWER(at_catalog(dirfd, path, out, flags))
    int result = NEXT(fstatat)(dirfd, path, out, flags);
    return named_at(result, dirfd, path, out, flags);
}

int fstatat64(int dirfd, const char *path, struct stat64 *out, int flags)
{
    ANSWER(at_catalog(dirfd, path, (struct stat *)out, flags))
    int result = NEXT(fstatat64)(dirfd, path, out, flags);
    return named_at(result, dirfd, path, (struct stat *)out, flags);
}

int __fxstatat(int ver, int dirfd, const char *path, struct stat *out, int flags)
{
    ANSWER(ver == STAT_VERSION ? at_catalog(dirfd, path, out, flags) : ASK_ORIGIN)
    int result = NEXT(__fxstatat)(ver, dirfd, path, out, flags);
    return named_at(result, dirfd, path, out, flags);
}

int __fxstatat64(int ver, int dirfd, const char *path, struct stat64 *out, int flags)
{
    struct stat *st = (struct stat *)out;
    ANSWER(ver == STAT_VERSION ? at_catalog(dirfd, path, st, flags) : ASK_ORIGIN)
    int result = NEXT(__fxstatat64)(ver, dirfd, path, out, flags);
    return named_at(result, dirfd, path, st, flags);
}

int fstat(int fd, struct stat *out)
{
    return as_origin(NEXT(fstat)(fd, out), fd, out);
}

int fstat64(int fd, struct stat64 *out)
{
    return as_origin(NEXT(fstat64)(fd, out), fd, (struct stat *)out);
}

int __fxstat(int ver, int fd, struct stat *out)
{
    return as_origin(NEXT(__fxstat)(ver, fd, out), fd, out);
}

int __fxstat64(int ver, int fd, struct stat64 *out)
{
    return as_origin(NEXT(__fxstat64)(ver, fd, out), fd, (struct stat *)out);
}

static struct statx_timestamp stamp(struct timespec t)
{
    return (struct statx_timestamp){.tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec};
}

/* to_statx - writes the same metadata in the newer form, with only the basic set. */
static void to_statx(const struct stat *st, struct statx *out)
{
    out->stx_mask = STATX_BASIC_STATS;
    out->stx_blksize = (uint32_t)st->st_blksize;
    out->stx_attributes = 0;
    out->stx_attributes_mask = 0;
    out->stx_nlink = (uint32_t)st->st_nlink;
    out->stx_uid = st->st_uid;
    out->stx_gid = st->st_gid;
    out->stx_mode = (uint16_t)st->st_mode;
    out->stx_ino = st->st_ino;
    out->stx_size = (uint64_t)st->st_size;
    out->stx_blocks = (uint64_t)st->st_blocks;
    out->stx_atime = stamp(st->st_atim);
    out->stx_mtime = stamp(st->st_mtim);
    out->stx_ctime = stamp(st->st_ctim);
    out->stx_dev_major = major(st->st_dev);
    out->stx_dev_minor = minor(st->st_dev);
}

/* on_tier - a Tier of this agent, or of an earlier one, lies on this device. */
static bool on_tier(const struct segments *seg, uint64_t dev)
{
    for (; seg; seg = seg->before)
        for (uint32_t t = 0; t < seg->catalog->tier_count; t++)
            if (seg->catalog->tiers[t].dev == dev)
                return true;
    return false;
}

/* looks - fills in the fields that show a Replica; a program may have requested only some. */
static bool looks(int dirfd, const char *path, const struct statx *out, struct stat *st)
{
    const unsigned wanted = STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME;
    *st = (struct stat){
        .st_dev = makedev(out->stx_dev_major, out->stx_dev_minor),
        .st_ino = out->stx_ino,
        .st_mode = out->stx_mode,
        .st_size = (off_t)out->stx_size,
        .st_blocks = (blkcnt_t)out->stx_blocks,
        .st_mtim.tv_sec = out->stx_mtime.tv_sec,
    };
    return (out->stx_mask & wanted) == wanted ||
           sys_stat(dirfd, path, st, path[0] ? 0 : AT_EMPTY_PATH) == 0;
}

/* statx_as_origin - replaces the identity in a redirected descriptor's statx, or that of its name
 * in /proc, by the origin's; the time of birth is the Replica's and is removed. */
static void statx_as_origin(int dirfd, const char *path, int flags, struct statx *out)
{
    const unsigned known = STATX_TYPE | STATX_MODE;
    bool itself = !path || !path[0];
    bool other = (out->stx_mask & known) == known && out->stx_mode != IDENTITY_MODE;
    bool may = !other && (itself || !(flags & AT_SYMLINK_NOFOLLOW));
    const struct segments *seg = may ? attach_for_marking() : NULL;
    struct identity id;
    struct stat st;
    if (!seg || !on_tier(seg, makedev(out->stx_dev_major, out->stx_dev_minor)) ||
        !looks(dirfd, itself ? "" : path, out, &st) ||
        !(itself ? found_replica(seg, dirfd, &st, &id)
                 : identity_of(seg, &st, &id) && object_by_descriptor(dirfd, path)))
        return;
    identity_describe(&id, &st);
    int fd = itself ? -1 : object_hold(dirfd, path, 0);
    if (fd >= 0) {
        restat_by_proc_name(seg, fd, &st);
        sys_close(fd);
    }
    memset(&out->stx_btime, 0, sizeof(out->stx_btime));
    to_statx(&st, out);
    count(COUNTER_stats_descriptor, 1);
}

int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *out)
{
    const int known = STAT_FLAGS | AT_STATX_DONT_SYNC;
    struct stat st;
    int answer = (flags & ~known) == 0 && (mask & ~STATX_BASIC_STATS) == 0
                     ? from_catalog(dirfd, path, &st, !(flags & AT_SYMLINK_NOFOLLOW))
                     : ASK_ORIGIN;
    if (answer == 0) {
        memset(out, 0, sizeof(*out));
        to_statx(&st, out);
    }
    if (answer != ASK_ORIGIN)
        return answer;
    int result = NEXT(statx)(dirfd, path, flags, mask, out);
    const char *volatile given = path; /* headers promise that it is not NULL */
    if (result == 0)
        statx_as_origin(dirfd, given, flags, out);
    return result;
}
