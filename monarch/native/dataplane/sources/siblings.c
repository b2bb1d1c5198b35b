/* siblings.c - finds Replicas of other jobs of this user on this node.
 *
 * A Replica never changes, and its name is the digest of an identity. So a File that a sibling has
 * READY, with the same identity in its Catalog, is the File that this job would copy; it is linked
 * into this job's Tier. When the sibling evicts it or ends, only the sibling's name is removed.
 *
 * This job waits for a File that a sibling is reading from the origin, as long as that makes
 * progress. A waiting job shows no progress itself, so that jobs do not wait for each other. If
 * several jobs need a File at the same moment, the one of the lowest generation reads it.
 *
 * A sibling whose agent has ended is used until the engine ends, or until its slot is needed.
 */
#include "dataplane/sources/siblings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "dataplane/base/clock.h"
#include "dataplane/base/syscalls.h"
#include "dataplane/sources/sibling_catalog.h"
#include "shared/catalog.h"
#include "shared/progress.h"
#include "shared/replica_table.h"

enum { SIBLINGS_MAX = 64 };

/* Of a Transfer, or of an agent: a slow origin and a busy machine have pauses, too. */
static const uint64_t SILENT_NS = 3 * SECOND_NS;
static const uint64_t SLICE_NS = SECOND_NS / 50; /* of a wait */
static const uint64_t DEAD_NS = 10 * SECOND_NS;  /* without a beat */

struct sibling {
    struct sibling_catalog catalog;
    int tiers[TIERS_MAX]; /* descriptors of their directories, or -errno */
    uint32_t users;       /* threads that use it; under the lock */
};

struct siblings {
    struct job *job;
    bool shares_memory;   /* Replicas in RAM are linked, too */
    pthread_mutex_t lock; /* guards the list */
    _Atomic uint32_t count;
    struct sibling *all[SIBLINGS_MAX];
};

/* siblings_new - creates an empty list. */
int siblings_new(struct job *job, bool shares_memory, struct siblings **out)
{
    struct siblings *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->job = job;
    s->shares_memory = shares_memory;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

/* ---- the list ------------------------------------------------------------------------- */

/* hold - returns a sibling, which stays until let_go(); NULL: no more. */
static struct sibling *hold(struct siblings *s, uint32_t number)
{
    pthread_mutex_lock(&s->lock);
    struct sibling *one = number < atomic_load(&s->count) ? s->all[number] : NULL;
    if (one)
        one->users++;
    pthread_mutex_unlock(&s->lock);
    return one;
}

static void let_go(struct siblings *s, struct sibling *one)
{
    pthread_mutex_lock(&s->lock);
    one->users--;
    pthread_mutex_unlock(&s->lock);
}

/* silent_ns - returns for how long its agent has shown no life. */
static uint64_t silent_ns(const struct sibling *one)
{
    return clock_ns() - sibling_catalog_beat(&one->catalog);
}

static bool is_known(const struct siblings *s, uint64_t generation)
{
    bool known = generation == s->job->catalog->seg.generation;
    for (uint32_t i = 0; i < atomic_load(&s->count); i++)
        known = known || s->all[i]->catalog.head.seg.generation == generation;
    return known;
}

/* is_linkable - a Tier of this job is on the same file system as that of a sibling. Memory is
 * charged to the job that wrote it, even when only others hold it: it is shared where no job has a
 * limit of its own. */
static bool is_linkable(const struct siblings *s, const struct tier *there)
{
    const struct catalog *own = s->job->catalog;
    bool same = false;
    for (uint32_t i = 0; i < own->tier_count; i++)
        same = same || own->tiers[i].dev == there->dev;
    return same && (there->kind || s->shares_memory);
}

static void open_tiers(const struct siblings *s, struct sibling *one)
{
    const struct catalog *c = &one->catalog.head;
    for (uint32_t i = 0; i < TIERS_MAX; i++) {
        one->tiers[i] = -ENOENT;
        if (i < c->tier_count && is_linkable(s, &c->tiers[i]))
            one->tiers[i] = file_openat(AT_FDCWD, c->tiers[i].path,
                                        O_PATH | O_DIRECTORY, 0);
    }
}

static void release(struct sibling *one)
{
    sibling_catalog_close(&one->catalog);
    for (uint32_t tier = 0; tier < TIERS_MAX; tier++)
        if (one->tiers[tier] >= 0)
            close(one->tiers[tier]);
    free(one);
}

/* make_room - releases a sibling that has ended, if there are too many; under the lock. */
static void make_room(struct siblings *s)
{
    uint32_t count = atomic_load(&s->count), dead = 0;
    while (dead < count && (s->all[dead]->users || silent_ns(s->all[dead]) < DEAD_NS))
        dead++;
    if (count < SIBLINGS_MAX || dead == count)
        return;
    release(s->all[dead]);
    s->all[dead] = s->all[count - 1];
    atomic_store(&s->count, count - 1);
}

/* open_sibling - opens a job by its run directory; see siblings_add(). */
static int open_sibling(const struct siblings *s, const char *run, struct sibling **out)
{
    struct sibling *one = *out = calloc(1, sizeof(*one));
    if (!one)
        return -ENOMEM;
    int rc = sibling_catalog_open(run, &one->catalog);
    if (rc) {
        free(one);
        return rc;
    }
    open_tiers(s, one);
    return 0;
}

/* siblings_add - adds a job by its run directory. -EINVAL: no Catalog of this version; -EEXIST: it
 * was added already; -ENOSPC: the list is full. */
int siblings_add(struct siblings *s, const char *run)
{
    struct sibling *one;
    int rc = open_sibling(s, run, &one);
    if (rc)
        return rc;
    pthread_mutex_lock(&s->lock);
    make_room(s);
    uint32_t count = atomic_load(&s->count);
    if (is_known(s, one->catalog.head.seg.generation))
        rc = -EEXIST;
    else if (count == SIBLINGS_MAX)
        rc = -ENOSPC;
    if (!rc) {
        s->all[count] = one;
        atomic_store(&s->count, count + 1);
    }
    pthread_mutex_unlock(&s->lock);
    if (rc)
        release(one);
    return rc;
}

/* siblings_free - frees the list; no thread uses it any more. */
void siblings_free(struct siblings *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < atomic_load(&s->count); i++)
        release(s->all[i]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- their Files ---------------------------------------------------------------------- */

/* number_of - returns the number of a File in the Catalog of a sibling; -1: it has none of this
 * name and identity. */
static int64_t number_of(const struct siblings *s, const struct sibling *one,
                         const struct original *o)
{
    const struct catalog *own = s->job->catalog;
    uint32_t root = 0;
    const struct entry *e = catalog_entry(own, o->file, &root);
    const struct index *ix = catalog_block(own, root);
    if (index_number(ix, e) >= ix->name_count)
        return -1; /* behind a link: its path does not identify it */
    const struct named_file file = {own->roots[root].path_hash, index_path(ix, e),
                                    index_path_bytes(e), o};
    return sibling_catalog_number(&one->catalog, &file);
}

/* has_tier - the Tier of a sibling can be linked from, into that of a File. */
static bool has_tier(const struct sibling *one, uint32_t tier, dev_t dev)
{
    return tier < TIERS_MAX && one->tiers[tier] >= 0 &&
           one->catalog.head.tiers[tier].dev == dev;
}

/* is_known_inode - this job has had the file before, and may not have settled its end yet. */
static bool is_known_inode(const struct siblings *s, uint64_t ino)
{
    bool known = false;
    pthread_mutex_lock(&s->job->inodes_lock);
    for (uint32_t i = 0; i < s->job->catalog->tier_count; i++)
        known = known || replica_find(s->job->inodes, i, ino) >= 0;
    pthread_mutex_unlock(&s->job->inodes_lock);
    return known;
}

/* open_copy - opens a Replica in the directory of a Tier, and checks it like one of an earlier
 * job. */
static int open_copy(const struct siblings *s, int tier, const struct sought *file,
                     struct sibling_copy *out)
{
    struct stat st;
    int fd = file_openat(tier, file->name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = fstat(fd, &st) ? -errno : 0;
    if (!rc && (!S_ISREG(st.st_mode) || (st.st_mode & 07777) != 0400 ||
                st.st_uid != geteuid() || st.st_dev != file->tier_dev ||
                (uint64_t)st.st_size != file->original->size || !st.st_nlink ||
                is_known_inode(s, st.st_ino)))
        rc = -ENOENT;
    *out = (struct sibling_copy){fd, st.st_ino};
    if (rc)
        close(fd);
    return rc;
}

static bool beats(const struct sibling *one)
{
    return silent_ns(one) < SILENT_NS;
}

/* reads_first - a sibling that looks for a File, perhaps at the same time as this job, reads it. */
static bool reads_first(const struct siblings *s, const struct sibling *one)
{
    return one->catalog.head.seg.generation < s->job->catalog->seg.generation;
}

/* is_read - a sibling reads a File from the origin, or is about to, for a Tier that can be linked
 * from. */
static bool is_read(const struct siblings *s, const struct sibling *one,
                    uint64_t number, dev_t dev)
{
    uint32_t word = sibling_catalog_word(&one->catalog, number);
    uint32_t progress = sibling_catalog_progress(&one->catalog, number);
    return STATE_OF(word) == REPLICA_STAGING && STATE_REASON(word) == REASON_NONE &&
           has_tier(one, STATE_TIER(word), dev) && progress &&
           (progress > PROGRESS_LOOKS || reads_first(s, one)) && beats(one);
}

/* take - opens the Replica that a sibling has READY. The same state word afterwards proves that it
 * was there all the time: a File that fills may have the same name. An agent that was killed has
 * left its words as they were, while its Tier may be that of a later job. */
static bool take(const struct siblings *s, const struct sibling *one, uint64_t number,
                 const struct sought *file, struct sibling_copy *out)
{
    uint32_t word = sibling_catalog_word(&one->catalog, number),
             tier = STATE_TIER(word);
    if (STATE_OF(word) != REPLICA_READY || !has_tier(one, tier, file->tier_dev) ||
        open_copy(s, one->tiers[tier], file, out))
        return false;
    uint32_t now = sibling_catalog_word(&one->catalog, number);
    if (((now ^ word) & ~STATE_CONFIRMED) == 0 && beats(one))
        return true;
    close(out->fd);
    return false;
}

/* find_at - siblings_find() for one job. */
static int find_at(const struct siblings *s, const struct sibling *one,
                   const struct sought *file, struct sibling_copy *out)
{
    int64_t number = number_of(s, one, file->original);
    if (number < 0)
        return -ENOENT;
    if (take(s, one, (uint64_t)number, file, out))
        return 0;
    return is_read(s, one, (uint64_t)number, file->tier_dev) ? -EAGAIN : -ENOENT;
}

/* siblings_find - opens a Replica of a File in a Tier on the same file system. -EAGAIN: a job is
 * reading it; -ENOENT: no job has it. */
int siblings_find(struct siblings *s, const struct sought *file,
                  struct sibling_copy *out)
{
    int rc = -ENOENT;
    struct sibling *one;
    for (uint32_t i = 0; rc && s && atomic_load(&s->count) && (one = hold(s, i)); i++) {
        int found = find_at(s, one, file, out);
        rc = found == -ENOENT ? rc : found;
        let_go(s, one);
    }
    return rc;
}

struct awaited { /* a File that a sibling reads */
    const struct sibling *sibling;
    uint64_t number, until_ns;
    const struct sought *sought;
};

/* is_over - this job stops waiting. */
static bool is_over(const struct siblings *s, const struct awaited *a, uint64_t now)
{
    return job_stopping(s->job) || now >= a->until_ns ||
           (a->sought->yields && job_awaits(s->job, a->sought->original->file));
}

/* await - waits while a sibling reads a File and makes progress; false: it makes none. */
static bool await(const struct siblings *s, const struct awaited *a)
{
    const struct sibling_catalog *c = &a->sibling->catalog;
    uint32_t begun = sibling_catalog_word(c, a->number), progress = 0;
    uint64_t now = clock_ns(), moved = now;
    while (now - moved < SILENT_NS && !is_over(s, a, now)) {
        uint32_t latest = sibling_catalog_progress(c, a->number);
        uint32_t seen = sibling_catalog_word(c, a->number);
        if (!is_read(s, a->sibling, a->number, a->sought->tier_dev) ||
            (seen ^ begun) & STATE_GENERATION)
            return true;
        moved = latest != progress ? now : moved;
        progress = latest;
        sibling_catalog_wait(c, a->number, seen, SLICE_NS);
        now = clock_ns();
    }
    return false;
}

/* siblings_await - waits for a job that reads the File, at most until `until_ns`; false: that job
 * makes no progress, or time is up. */
bool siblings_await(struct siblings *s, const struct sought *file, uint64_t until_ns)
{
    bool ended = true, waited = false;
    struct sibling *one;
    for (uint32_t i = 0; !waited && (one = hold(s, i)); i++) {
        int64_t number = number_of(s, one, file->original);
        waited = number >= 0 && is_read(s, one, (uint64_t)number, file->tier_dev);
        const struct awaited a = {one, (uint64_t)number, until_ns, file};
        ended = !waited || await(s, &a);
        let_go(s, one);
    }
    return ended;
}
