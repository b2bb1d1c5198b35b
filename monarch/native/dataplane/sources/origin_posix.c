/* origin_posix.c - opens a File at its origin, a POSIX file system, compares it with the Catalog,
 * and drops a second copy of it from memory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/order.h"
#include "dataplane/sources/origin.h"
#include "shared/catalog.h"

/* A File that changed so recently may have changed again since the client last requested its
 * attributes. */
#define SETTLED_NS (3600 * (int64_t)SECOND_NS)

enum {
    CALL_CACHESTAT = 451, /* on all architectures */
    CACHED_PART = 64,     /* more than this part of a File counts as cached */
};

enum { /* the identity: without atime, because a copy makes the client's one stale */
       IDENTITY = STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME |
                  STATX_CTIME,
};

/* is_time - compares the parts: nanoseconds of times after 2262 overflow 64 bits. */
static bool is_time(struct statx_timestamp t, int64_t ns)
{
    struct timespec expected = file_time(ns);
    return t.tv_sec == expected.tv_sec && t.tv_nsec == (uint32_t)expected.tv_nsec;
}

/* is_settled - the File has not changed for an hour, by the clock of this node. */
static bool is_settled(const struct original *o)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t since = (int64_t)now.tv_sec * (int64_t)SECOND_NS - SETTLED_NS;
    return o->mtime_ns < since && o->ctime_ns < since;
}

static struct statx_timestamp stamp(struct timespec t)
{
    return (struct statx_timestamp){.tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec};
}

/* stat_instead - replaces statx() before Linux 4.11 and in sandboxes without it. */
static int stat_instead(int fd, struct statx *out)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    *out = (struct statx){.stx_mode = (uint16_t)st.st_mode,
                          .stx_ino = st.st_ino,
                          .stx_size = (uint64_t)st.st_size,
                          .stx_mtime = stamp(st.st_mtim),
                          .stx_ctime = stamp(st.st_ctim),
                          .stx_dev_major = major(st.st_dev),
                          .stx_dev_minor = minor(st.st_dev)};
    return 0;
}

/* is_as_indexed - returns -ESTALE unless the open source has the identity in the Catalog. Without
 * AT_STATX_FORCE_SYNC the client answers, which costs no request where it keeps attributes. */
static int is_as_indexed(struct original *o, int fd, int sync)
{
    struct statx st;
    int rc = 0;
    o->step = MONARCH_STEP_STAT;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | sync, IDENTITY, &st))
        rc = errno == ENOSYS || errno == EPERM ? stat_instead(fd, &st) : -errno;
    if (rc)
        return rc;
    bool same = S_ISREG(st.stx_mode) && st.stx_ino == o->ino &&
                st.stx_size == o->size &&
                makedev(st.stx_dev_major, st.stx_dev_minor) == o->dev &&
                is_time(st.stx_mtime, o->mtime_ns) &&
                is_time(st.stx_ctime, o->ctime_ns);
    return same ? 0 : -ESTALE;
}

/* origin_same - returns -ESTALE unless the open File matches the Catalog, as far as the client
 * knows: a program that reads it sees no more. */
int origin_same(struct original *o, int fd)
{
    return is_as_indexed(o, fd, AT_STATX_SYNC_AS_STAT);
}

/* origin_unchanged - returns -ESTALE after the copy unless the File is as it was when it was
 * indexed. Times of change never go back, so nothing changed meanwhile; if it changed shortly
 * before, the server itself is asked. */
int origin_unchanged(struct original *o, int fd)
{
    return is_as_indexed(o, fd,
                         is_settled(o) ? AT_STATX_SYNC_AS_STAT : AT_STATX_FORCE_SYNC);
}

/* is_cached - much of the source is in memory before this node reads it, so that others may use it.
 * Some pages are cached where programs read them before the agent; see read_through.c. Needs
 * cachestat(2): Linux 6.5, and not permitted to every user. */
static bool is_cached(const struct original *o, int fd)
{
    struct {
        uint64_t offset, bytes;
    } all = {0, o->size};
    struct {
        uint64_t cached, dirty, writeback, evicted, evicted_recently;
    } pages = {0};
    return !syscall(CALL_CACHESTAT, fd, &all, &pages, 0) &&
           pages.cached > o->size / PAGE_BYTES / CACHED_PART;
}

/* is_mapped - a program has mapped the File at the origin, and reads its pages. */
static bool is_mapped(const struct job *job, uint32_t file)
{
    const struct flags *f = job->flags;
    const _Atomic uint8_t *whole = (const _Atomic uint8_t *)f + f->whole;
    return f->whole &&
           atomic_load_explicit(&whole[file], memory_order_relaxed) == WHOLE_MAPPED;
}

/* origin_drop - drops what was read of a large File from the page cache: the Tier has it now. For
 * small Files that would cost a third of their copy. */
void origin_drop(const struct job *job, const struct original *o,
                 const struct origin_range *read)
{
    if (o->drops_pages && !is_mapped(job, o->file))
        posix_fadvise(read->fd, (off_t)read->offset, (off_t)read->bytes,
                      POSIX_FADV_DONTNEED);
}

/* open_entry - opens the first Entry of a File: O_NONBLOCK in case it is now a FIFO, and O_NOATIME
 * where the kernel permits it. */
static int open_entry(const struct job *job, const struct original *o)
{
    char path[PATH_MAX];
    const struct entry *entry = catalog_entry(job->catalog, o->file, NULL);
    bool outer = index_is_outer(catalog_block(job->catalog, o->root), entry);
    bool quiet = job->euid == 0 || job->euid == o->owner;
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | (outer ? 0 : O_NOFOLLOW);
    if (!catalog_path(job->catalog, o->root, entry, path, sizeof(path)))
        return -ENAMETOOLONG;
    int fd = file_followat(AT_FDCWD, path, flags | (quiet ? O_NOATIME : 0), 0);
    return fd == -EPERM && quiet ? file_followat(AT_FDCWD, path, flags, 0) : fd;
}

/* origin_find - copies the identity of a File; -EINVAL: no File has this number. */
int origin_find(const struct job *job, uint32_t file, struct original *out)
{
    const struct catalog *cat = job->catalog;
    uint32_t root = 0;
    const struct entry *entry = catalog_entry(cat, file, &root);
    if (!entry)
        return -EINVAL;
    const struct attr *attr = index_attr(catalog_block(cat, root), entry);
    *out = (struct original){.file = file,
                             .root = root,
                             .dev = attr->dev,
                             .ino = entry->ino,
                             .size = entry->size,
                             .mtime_ns = entry->mtime_ns,
                             .ctime_ns = entry->ctime_ns,
                             .owner = attr->uid};
    return 0;
}

/* origin_open - opens a File and compares it with the Catalog, so as not to copy in vain; returns a
 * descriptor, or -errno. */
int origin_open(const struct job *job, struct original *o)
{
    o->step = MONARCH_STEP_OPEN;
    int fd = open_entry(job, o);
    if (fd < 0)
        return fd;
    o->drops_pages = o->size > EXTENT_BYTES && !is_cached(o, fd);
    int rc = is_as_indexed(o, fd, AT_STATX_SYNC_AS_STAT);
    if (rc)
        close(fd);
    return rc ? rc : fd;
}
