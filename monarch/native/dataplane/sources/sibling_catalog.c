/* sibling_catalog.c - reads the Catalog of another job of this user.
 *
 * A file of another job may be truncated, or be of another version, at any time. So it is never
 * read through a mapping, where a missing page kills the process: after a short read, the job
 * counts as not having the File. Heads are copied once; the slot, Entry, attributes and path of a
 * File are read when it is looked up, and its state word each time.
 */
#include "dataplane/sources/sibling_catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "dataplane/base/clock.h"
#include "dataplane/base/syscalls.h"
#include "shared/catalog.h"
#include "shared/progress.h"

enum { SLOTS_AT_ONCE = 8 };

/* has_read - reads all of a piece of a segment. */
static bool has_read(int fd, void *out, size_t n, uint64_t at)
{
    return file_read_at(fd, out, n, at) == (ssize_t)n;
}

/* ---- opening ------------------------------------------------------------------------ */

/* open_segment - opens a segment of a run directory and copies its head. -EINVAL: it is of another
 * user or version, or truncated. */
static int open_segment(const char *path, void *head, size_t n, enum segment_kind kind)
{
    struct stat st;
    const struct segment *seg = head;
    int fd = file_openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        has_read(fd, head, n, 0) &&
        memcmp(seg->magic, "MONARCH", sizeof(seg->magic)) == 0 && seg->kind == kind &&
        seg->version == LAYOUT_VERSION && seg->length == (uint64_t)st.st_size)
        return fd;
    close(fd);
    return -EINVAL;
}

static int open_named(const char *run, const char *name, void *head, size_t n,
                      enum segment_kind kind)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", run, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    return open_segment(path, head, n, kind);
}

/* copy_blocks - copies the heads of the index blocks. */
static int copy_blocks(struct sibling_catalog *c)
{
    const struct catalog *head = &c->head;
    if (head->root_count > ROOTS_MAX || head->tier_count > TIERS_MAX)
        return -EINVAL;
    c->blocks = calloc(ROOTS_MAX, sizeof(*c->blocks));
    if (!c->blocks)
        return -ENOMEM;
    for (uint32_t i = 0; i < head->root_count; i++)
        if (!has_read(c->catalog, &c->blocks[i], sizeof(*c->blocks),
                      head->roots[i].block))
            return -EINVAL;
    return 0;
}

/* map_states - maps the state words. */
static int map_states(struct sibling_catalog *c)
{
    const struct catalog *head = &c->head;
    if (head->states % sizeof(uint32_t) || head->states > head->seg.length ||
        head->file_count > (head->seg.length - head->states) / sizeof(uint32_t))
        return -EINVAL;
    void *at = mmap(NULL, head->seg.length, PROT_READ, MAP_SHARED, c->catalog, 0);
    if (at == MAP_FAILED)
        return -errno;
    c->states = (const uint32_t *)((const char *)at + head->states);
    return 0;
}

/* sibling_catalog_open - opens the Catalog in a run directory. -EINVAL: it is not of this user and
 * version. */
int sibling_catalog_open(const char *run, struct sibling_catalog *out)
{
    struct segment requests;
    *out = (struct sibling_catalog){.catalog = -1, .requests = -1};
    int rc = out->catalog = open_named(run, "catalog", &out->head, sizeof(out->head),
                                       SEGMENT_CATALOG);
    if (rc >= 0)
        rc = out->requests = open_named(run, "requests", &requests, sizeof(requests),
                                        SEGMENT_REQUESTS);
    rc = rc < 0 ? rc : copy_blocks(out);
    rc = rc ? rc : map_states(out);
    if (rc)
        sibling_catalog_close(out);
    return rc;
}

/* sibling_catalog_close - closes it; no thread reads it any more. */
void sibling_catalog_close(struct sibling_catalog *c)
{
    if (c->states)
        munmap((char *)(uintptr_t)c->states - c->head.states, c->head.seg.length);
    if (c->catalog >= 0)
        close(c->catalog);
    if (c->requests >= 0)
        close(c->requests);
    free(c->blocks);
    *c = (struct sibling_catalog){.catalog = -1, .requests = -1};
}

/* ---- look-ups ----------------------------------------------------------------------- */

/* has_path - an Entry of a root has this path. */
static bool has_path(const struct sibling_catalog *c, uint32_t root,
                     const struct entry *e, const struct named_file *file)
{
    char path[PATH_BYTES_MAX];
    const struct index *ix = &c->blocks[root];
    uint64_t at = c->head.roots[root].block + ix->arena + (e->path >> 16);
    return index_path_bytes(e) == file->path_bytes && file->path_bytes < sizeof(path) &&
           has_read(c->catalog, path, file->path_bytes, at) &&
           memcmp(path, file->path, file->path_bytes) == 0;
}

/* read_entry - reads the Entry of a slot, if it is that of a File. */
static bool read_entry(const struct sibling_catalog *c, uint32_t root,
                       const struct slot *slot, struct entry *out)
{
    const struct index *ix = &c->blocks[root];
    uint64_t at = c->head.roots[root].block + ix->entries +
                  (slot->entry - 1ull) * sizeof(*out);
    return slot->entry <= ix->name_count &&
           has_read(c->catalog, out, sizeof(*out), at) && out->file != NONE32;
}

/* find_entry - looks up a path in the hash table of a root, as index_find_hashed() does. */
static bool find_entry(const struct sibling_catalog *c, uint32_t root,
                       const struct named_file *file, struct entry *out)
{
    struct slot slots[SLOTS_AT_ONCE];
    const struct index *ix = &c->blocks[root];
    uint64_t hash = index_hash(file->path, file->path_bytes);
    uint64_t table = c->head.roots[root].block + ix->slots;
    uint32_t at = index_home(hash, ix->slot_count), read = 0;
    for (uint32_t seen = 0; seen < ix->slot_count; seen += read, at += read) {
        at = at < ix->slot_count ? at : 0;
        uint32_t left = ix->slot_count - at;
        read = left < SLOTS_AT_ONCE ? left : SLOTS_AT_ONCE;
        if (!has_read(c->catalog, slots, read * sizeof(*slots),
                      table + at * sizeof(*slots)))
            return false;
        for (uint32_t i = 0; i < read; i++) {
            if (!slots[i].entry)
                return false;
            if (slots[i].tag == (uint32_t)hash && read_entry(c, root, &slots[i], out) &&
                has_path(c, root, out, file))
                return true;
        }
    }
    return false;
}

/* is_same - an Entry of a root has the identity of a File. */
static bool is_same(const struct sibling_catalog *c, uint32_t root,
                    const struct entry *e, const struct original *o)
{
    struct attr attr;
    const struct index *ix = &c->blocks[root];
    uint64_t at = c->head.roots[root].block + ix->attrs + e->attr * sizeof(attr);
    return e->ino == o->ino && e->size == o->size && e->mtime_ns == o->mtime_ns &&
           e->ctime_ns == o->ctime_ns &&
           has_read(c->catalog, &attr, sizeof(attr), at) && attr.dev == o->dev;
}

/* sibling_catalog_number - returns the number of a File; -1: none has this path and identity. */
int64_t sibling_catalog_number(const struct sibling_catalog *c,
                               const struct named_file *file)
{
    struct entry e;
    for (uint32_t i = 0; i < c->head.root_count; i++) {
        if (c->head.roots[i].path_hash != file->root_hash ||
            !find_entry(c, i, file, &e) || !is_same(c, i, &e, file->original))
            continue;
        uint64_t number = file_number(&c->head.roots[i], &e);
        return number < c->head.file_count ? (int64_t)number : -1;
    }
    return -1;
}

/* ---- changing values ---------------------------------------------------------------- */

/* sibling_catalog_word - returns the state word of a File; 0: it is absent, or cannot be read. */
uint32_t sibling_catalog_word(const struct sibling_catalog *c, uint64_t number)
{
    uint32_t word;
    bool has = has_read(c->catalog, &word, sizeof(word),
                        c->head.states + number * sizeof(word));
    atomic_thread_fence(memory_order_acquire);
    return has ? word : STATE_WORD(REPLICA_ABSENT, 0, 0);
}

/* sibling_catalog_progress - see progress_load(). */
uint32_t sibling_catalog_progress(const struct sibling_catalog *c, uint64_t number)
{
    uint64_t word, at = offsetof(struct requests, progress) +
                        number % WAITER_COUNTS * sizeof(word);
    bool has = has_read(c->requests, &word, sizeof(word), at);
    return has ? progress_in(word, number) : 0;
}

/* sibling_catalog_beat - returns when its agent was last seen alive, by CLOCK_MONOTONIC. */
uint64_t sibling_catalog_beat(const struct sibling_catalog *c)
{
    uint64_t beat_ns;
    bool has = has_read(c->requests, &beat_ns, sizeof(beat_ns),
                        offsetof(struct requests, heartbeat_ns));
    return has ? beat_ns : 0;
}

/* sibling_catalog_wait - waits until the state word of a File changes, for at most `ns`. */
void sibling_catalog_wait(const struct sibling_catalog *c, uint64_t number,
                          uint32_t seen, uint64_t ns)
{
    const struct timespec limit = clock_timespec(ns);
    syscall(SYS_futex, &c->states[number], FUTEX_WAIT, seen, &limit, NULL, 0);
}
