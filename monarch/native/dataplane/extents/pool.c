/* pool.c - the bounded Pool for Files that pass through a node which does not keep them:
 * first in, first out.
 *
 * The room of a Replica counts as used until no program can have it open: its state word is
 * changed, its name is removed, and its file is proved to be unused (leaving.c). An open that
 * found the name before and ends after the proof reads the state word again, sees that it has
 * changed, and closes the file. So no thread has to wait, and opened files stay as they are.
 *
 * A Replica that programs wait for stays until they have opened it: each counts itself in the
 * requests segment. A killed program leaves its count behind, so a count expires after
 * WAITERS_NS. Files that hints have read ahead stay until they are opened, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/eviction.h"
#include "dataplane/extents/hint_claims.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/leaving.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"

enum {
    READY_MIN = 1 << 16,
    AHEAD_PARTS = 8,   /* 1/AHEAD_PARTS stays free, so that few Files wait */
    EVICTIONS_MAX = 8, /* in one call that no program waits for */
};

static const uint64_t WAITERS_NS = SECOND_NS;

struct pooled { /* a Replica that is READY */
    uint32_t file, word;
    uint64_t since_ns;
};

struct pool {
    struct job *job;
    struct table *table;
    const struct claims *claims; /* NULL: no hints */
    uint32_t tier;
    pthread_mutex_t lock; /* guards the rest; taken before that of the table */
    struct ring ready;    /* struct pooled */
    struct leaving leaving;
};

static uint64_t capacity_of(struct table *table, uint32_t tier)
{
    struct monarch_account a;
    monarch_table_account(table, tier, &a);
    return a.in_service ? a.capacity : 0;
}

/* pool_new - creates the Pool of an engine with a table, numbered after its Tiers. */
int pool_new(struct job *job, struct table *table, const struct claims *claims,
             struct pool **out)
{
    struct pool *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *out = p;
    p->job = job;
    p->table = table;
    p->claims = claims;
    p->tier = table->options.tiers;
    pthread_mutex_init(&p->lock, NULL);
    uint64_t most = capacity_of(table, p->tier) / PAGE_BYTES + 1;
    most = most > READY_MIN ? most : READY_MIN; /* it may grow later */
    most = most < table->options.files + 1 ? most : table->options.files + 1;
    if (ring_init(&p->ready, sizeof(struct pooled), (uint32_t)most) ||
        leaving_new(&p->leaving, job, table))
        return -ENOMEM;
    return 0;
}

/* pool_free - closes all files; no thread uses the Pool any more. */
void pool_free(struct pool *p)
{
    if (!p)
        return;
    leaving_free(&p->leaving);
    ring_free(&p->ready);
    free(p);
}

/* ---- room; the callers hold the lock ------------------------------------------------ */

static uint64_t free_bytes(struct pool *p)
{
    struct monarch_account a;
    monarch_table_account(p->table, p->tier, &a);
    uint64_t taken = a.used + a.reserved;
    return a.in_service && a.capacity > taken ? a.capacity - taken : 0;
}

static _Atomic uint32_t *waiters_of(const struct pool *p, uint32_t file)
{
    struct requests *r = p->job->requests;
    return (_Atomic uint32_t *)&r->waiters[file % WAITER_COUNTS];
}

/* is_awaited - a program waits for the File, or was woken and has not opened it yet. */
static bool is_awaited(const struct pool *p, const struct pooled *one, uint64_t now)
{
    _Atomic uint32_t *count = waiters_of(p, one->file);
    if (!atomic_load_explicit(count, memory_order_seq_cst))
        return false;
    if (now - one->since_ns < WAITERS_NS)
        return true;
    atomic_store_explicit(count, 0, memory_order_relaxed);
    return false;
}

/* is_hinted - the File was read ahead for a hint and is not opened yet. */
static bool is_hinted(const struct pool *p, uint32_t file)
{
    return p->claims && claims_due(p->claims, file) > 0;
}

static int open_replica(const struct pool *p, uint32_t file,
                        char name[REPLICA_NAME_BYTES + 1])
{
    catalog_replica_name(p->job->catalog, file, name);
    return file_openat(p->job->tiers[p->tier], name, O_RDONLY | O_NONBLOCK, 0);
}

/* leave - removes the name of a Replica whose state is still `seen`. Programs that request it
 * meanwhile wait: no Transfer may begin while the old name exists. */
static bool leave(const struct pool *p, uint32_t file, uint32_t seen, const char *name)
{
    const struct job *job = p->job;
    _Atomic uint32_t *words = replica_word(job->catalog, 0);
    uint32_t leaving = STATE_NEXT(seen, REPLICA_STAGING, p->tier, 0);
    if (!replica_state_change(words, file, &seen, leaving, false))
        return false;
    unlinkat(job->tiers[p->tier], name, 0);
    bool again = table_uses_pool(p->table) || table_will_be_restaged(p->table, file);
    uint32_t reason = again ? REASON_NONE : REASON_NO_ROOM;
    if (replica_state_end(words, file, leaving, STATE_WORD(REPLICA_ABSENT, 0, reason)))
        replica_state_wake(words, file);
    return true;
}

/* is_shortage - the node is short of descriptors or memory for a moment: the Replica is intact. */
static bool is_shortage(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* evict - evicts a Replica; programs request it again from now on. False: the Replica was lost or
 * replaced, and another thread accounts for it. */
static bool evict(struct pool *p, const struct pooled *one)
{
    const struct job *job = p->job;
    struct stat st;
    char name[REPLICA_NAME_BYTES + 1];
    int fd = open_replica(p, one->file, name);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0)
            close(fd);
        if (is_shortage(fd))
            ring_push(&p->ready, one);
        else
            job->judge(job->judge_of, one->file); /* Python looks for it */
        return false;
    }
    uint32_t seen = replica_load(job->catalog, one->file);
    bool same = ((seen ^ one->word) & ~STATE_CONFIRMED) == 0;
    if (!same || !leave(p, one->file, seen, name)) {
        close(fd);
        return false;
    }
    const struct left h = {.fd = fd,
                           .tier = p->tier,
                           .ino = st.st_ino,
                           .room = footprint(p->table->options.sizes[one->file])};
    leaving_add(&p->leaving, &h);
    return true;
}

/* make_room - evicts the oldest Replicas, at most `most`, until `need` bytes are free. */
static bool make_room(struct pool *p, uint64_t need, uint32_t most)
{
    uint64_t now = clock_ns();
    uint32_t looked_at = p->ready.count;
    struct pooled one;
    while (free_bytes(p) < need) {
        if (!looked_at-- || !most || leaving_is_full(&p->leaving) ||
            !ring_pop(&p->ready, &one))
            return false;
        if (is_awaited(p, &one, now) || is_hinted(p, one.file) ||
            table_is_due(p->table, one.file))
            ring_push(&p->ready, &one);
        else
            most -= evict(p, &one);
    }
    return true;
}

/* ---- for others -------------------------------------------------------------------- */

/* pool_make_room - evicts the oldest Replicas until `need` bytes are free, if possible. */
void pool_make_room(struct pool *p, uint64_t need)
{
    pthread_mutex_lock(&p->lock);
    make_room(p, need, UINT32_MAX);
    pthread_mutex_unlock(&p->lock);
}

/* pool_check_held - frees the room of Replicas that programs have closed since. */
void pool_check_held(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    leaving_poll(&p->leaving);
    pthread_mutex_unlock(&p->lock);
}

/* pool_published - notes a Replica that has arrived, and may evict another one: some room is freed
 * ahead of need. */
void pool_published(struct pool *p, uint32_t file, uint32_t word)
{
    pthread_mutex_lock(&p->lock);
    if (p->ready.count == p->ready.capacity) /* of lost ones, which have left already */
        make_room(p, UINT64_MAX, 1);
    ring_push(&p->ready, &(struct pooled){file, word, clock_ns()});
    make_room(p, capacity_of(p->table, p->tier) / AHEAD_PARTS, EVICTIONS_MAX);
    pthread_mutex_unlock(&p->lock);
    _Atomic uint32_t *full = (_Atomic uint32_t *)&p->job->requests->pool_full;
    if (atomic_load_explicit(full, memory_order_relaxed))
        job_ring(p->job);
}
