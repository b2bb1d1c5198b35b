/* engine.c - what the threads of an engine do, one of which listens to programs while the
 * others run Transfers; and its beginning and end.
 */

#include "dataplane/demand/demand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/transfers/compaction.h"
#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/extent_packing.h"
#include "dataplane/demand/hints.h"
#include "dataplane/extents/pack_adoption.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/pool.h"
#include "dataplane/media/seal.h"
#include "dataplane/extents/staging_table.h"
#include "dataplane/base/syscalls.h"
#include "dataplane/transfers/transfer.h"

enum { FAILED_START_TIMEOUT_MS = 5000 }; /* its threads are idle */

/* follow_hints - begins a File that a program will open, if there is one and room for it;
 * true: the lock was released meanwhile, so that there may be other work by now. */
static bool follow_hints(struct engine *e)
{
    if (!hints_wanted(e) || !scheduler_has_room(e))
        return false;
    pthread_mutex_unlock(&e->lock);
    hints_begin(e);
    pthread_mutex_lock(&e->lock);
    return true;
}

/* follow_packing - makes room for Files that are to be packed, outside the lock; false: none
 * has asked for it. */
static bool follow_packing(struct engine *e)
{
    if (!e->eviction)
        return false;
    pthread_mutex_unlock(&e->lock);
    bool followed = eviction_go_on_packing(e->eviction);
    pthread_mutex_lock(&e->lock);
    return followed;
}

/* look - looks at the slots of programs, then takes what is to be run now. */
static struct transfer *look(struct engine *e)
{
    e->looking++;
    pthread_mutex_unlock(&e->lock);
    requests_look(e);
    pthread_mutex_lock(&e->lock);
    struct transfer *t = scheduler_take(e);
    e->looking--;
    return t;
}

/* find_transfer - the Transfer to run now. If there is none, this thread answers calls
 * from now on, looks again for what it may have missed, and waits: NULL. */
static struct transfer *find_transfer(struct engine *e)
{
    struct transfer *t = look(e);
    if (t || follow_hints(e) || follow_packing(e))
        return t;
    idle_answer(e);
    t = look(e);
    if (t)
        return t;
    scheduler_wait(e);
    idle_answer(e);
    return NULL;
}

/* run_transfer - with the buffer that was used last, which the caches of the processors
 * still hold; under the lock, but for the Transfer itself. */
static bool run_transfer(struct engine *e, struct transfer *t)
{
    uint32_t number = e->unused[--e->unused_count];
    uint8_t *buffer = e->buffers + (size_t)number * TRANSFER_BUFFER_BYTES;
    pthread_mutex_unlock(&e->lock);
    bool partly = t->partial || (!t->begun && partial_applies(e, &t->order));
    bool ended;
    if (transfer_defers(t))
        ended = deferred_run(e, t);
    else if (transfer_repacks(t))
        ended = t->order.block_count ? extent_packing_run(e, t, buffer)
                                     : repacking_run(e, t, buffer);
    else
        ended = partly ? blocks_run(e, t, buffer) : transfer_run(e, t, buffer);
    pthread_mutex_lock(&e->lock);
    e->unused[e->unused_count++] = number;
    return ended;
}

/* run_transfers - runs the Transfers that the scheduler selects. */
static void run_transfers(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!engine_stopping(e)) {
        struct transfer *t = find_transfer(e);
        if (!t)
            continue;
        threads_for_demand(e);
        scheduler_return(e, t, run_transfer(e, t));
    }
    pthread_mutex_unlock(&e->lock);
}

static void *work(void *worker)
{
    const struct worker *w = worker;
    struct engine *e = w->engine;
    vector_registers_reset();
    if (w->copies)
        run_transfers(e);
    else
        requests_listen(e);
    pthread_mutex_lock(&e->lock);
    e->running--;
    pthread_cond_broadcast(&e->ended);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static bool segment_is(const void *segment, enum segment_kind kind)
{
    const struct segment *s = segment;
    return s && memcmp(s->magic, "MONARCH", 8) == 0 && s->version == LAYOUT_VERSION &&
           s->kind == kind;
}

static bool usable(const struct monarch_segments *s, const struct monarch_options *o)
{
    return segment_is(s->catalog, SEGMENT_CATALOG) &&
           segment_is(s->flags, SEGMENT_FLAGS) &&
           segment_is(s->requests, SEGMENT_REQUESTS) &&
           segment_is(s->inodes, SEGMENT_INODES) && o->threads > 0 &&
           o->threads <= THREADS_MAX && o->background_max <= o->threads &&
           o->background_first <= o->background_max &&
           (o->seal_key ? o->seals != NULL : !o->seals_only);
}

static void open_tiers(struct engine *e)
{
    for (uint32_t i = 0; i < TIERS_MAX; i++) {
        e->tiers[i] = -ENOENT;
        if (i < e->catalog->tier_count)
            e->tiers[i] = file_openat(AT_FDCWD, e->catalog->tiers[i].path,
                                      O_PATH | O_DIRECTORY, 0);
    }
}

static int init_locks(struct engine *e)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    if (rc)
        return -rc;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&e->ended, &attributes);
    rc = rc ? rc : pthread_cond_init(&e->readers.freed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->inodes_lock, NULL);
    pthread_mutex_init(&e->seals_lock, NULL);
    return -rc;
}

/* start - allocates what the engine owns; release() is due even after a failure. */
static int start(struct engine *e)
{
    uint32_t threads = e->options.threads;
    open_tiers(e);
    int rc = event_fd_open(&e->event_fd);
    rc = rc ? rc : init_locks(e);
    rc = rc ? rc : scheduler_init(e);
    if (!rc && e->table && e->catalog->tier_count > e->table->options.tiers) {
        rc = pool_new(e, &e->pool);
        rc = rc ? rc : pool_queue_new(e, &e->pool_queue);
        if (!rc && e->flags->opened)
            rc = hints_new(e, &e->hints);
    }
    if (!rc && e->pool && e->options.packing_count)
        rc = packs_new(e, &e->packs);
    if (!rc && e->packs)
        rc = deferred_new(&e->deferred);
    if (!rc && e->table && e->flags->recency)
        rc = eviction_new(e, &e->eviction);
    rc = rc ? rc : partials_new(e, &e->partials);
    if (!rc && e->options.seal_key)
        rc = sealer_new(e->options.seal_key, e->catalog->digest, &e->sealer);
    e->options.seal_key = NULL; /* sealer_new() has copied it */
    if (rc)
        return rc;
    e->buffers = aligned_alloc(4096, (size_t)threads * TRANSFER_BUFFER_BYTES);
    e->workers = calloc(threads + 1, sizeof(*e->workers));
    e->unused = calloc(threads, sizeof(*e->unused));
    if (!e->buffers || !e->workers || !e->unused)
        return -ENOMEM;
    while (e->unused_count < threads) {
        e->unused[e->unused_count] = e->unused_count;
        e->unused_count++;
    }
    pthread_mutex_lock(&e->lock);
    e->thread_body = work;
    rc = threads_start(e);
    if (!rc && e->packs)
        rc = compaction_start(e, &e->compaction);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static void release(struct engine *e)
{
    compaction_free(e->compaction);
    scheduler_free(e); /* before the Tiers, which parked Transfers use */
    if (e->packs && e->options.retains)
        pack_adoption_seal(e->packs);
    partials_free(e);
    deferred_free(e->deferred);
    eviction_free(e->eviction);
    packs_free(e->packs);
    hints_free(e->hints);
    pool_queue_free(e->pool_queue);
    pool_free(e->pool);
    sealer_free(e->sealer);
    for (uint32_t i = 0; i < TIERS_MAX; i++)
        if (e->tiers[i] >= 0)
            close(e->tiers[i]);
    event_fd_close(&e->event_fd);
    free(e->buffers);
    free(e->unused);
    free(e->workers);
    free(e);
}

static uint64_t mean_bytes(const struct table *t)
{
    uint64_t sum = 0;
    if (!t || !t->options.files)
        return 1;
    for (uint64_t i = 0; i < t->options.files; i++)
        sum += t->options.sizes[i];
    return sum / t->options.files + 1;
}

/* monarch_engine_new - starts an engine on mapped segments, which it borrows until
 * monarch_engine_free(). A Tier whose directory cannot be opened fails its own orders
 * only. -EINVAL: invalid segments or options; -ENOSYS: a key, but no libcrypto. */
int monarch_engine_new(const struct monarch_segments *segments,
                       const struct monarch_options *options, struct engine **out)
{
    if (!usable(segments, options))
        return -EINVAL;
    struct engine *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->catalog = segments->catalog;
    e->root_count = e->catalog->root_count;
    e->flags = segments->flags;
    e->requests = segments->requests;
    e->inodes = segments->inodes;
    e->options = *options;
    e->readers.limit = options->readers_max;
    e->table = options->table;
    if (e->table)
        e->table->flags = e->flags;
    e->fill.mean_bytes = mean_bytes(e->table);
    e->euid = geteuid();
    e->links_by_path = access("/proc/self/fd", X_OK) == 0;
    atomic_store(&e->links_by_fd, true);
    int rc = start(e);
    if (rc) {
        monarch_engine_free(e, FAILED_START_TIMEOUT_MS);
        return rc;
    }
    *out = e;
    return 0;
}

/* monarch_engine_set_background - permits so many background Transfers at once, at most
 * background_max, and so many while programs wait for others. Those beyond that run
 * already stop at their next chunk, or end. */
void monarch_engine_set_background(struct engine *e, uint32_t n, uint32_t beside)
{
    struct demand_time stale;
    pthread_mutex_lock(&e->lock);
    e->background_limit = n < e->options.background_max ? n : e->options.background_max;
    e->background_beside = beside;
    e->limits++;
    while (ring_pop(&e->demands, &stale)) {
    }
    threads_start(e); /* those that there are do the work if it fails */
    idle_call_all(e);
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_event_fd - readable while Python has something to collect; the engine
 * empties it. */
int monarch_engine_event_fd(const struct engine *e)
{
    return e->event_fd.fd;
}

/* join_all - joins the threads until a deadline; false if one of them hangs. */
static bool join_all(struct engine *e, uint64_t until_ns)
{
    const struct timespec until = clock_timespec(until_ns);
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    while (e->running && !rc)
        rc = pthread_cond_timedwait(&e->ended, &e->lock, &until);
    bool all = e->running == 0;
    uint32_t started = e->started;
    pthread_mutex_unlock(&e->lock);
    for (uint32_t i = 0; i < started; i++) {
        if (all)
            pthread_join(e->workers[i].thread, NULL);
        else
            pthread_detach(e->workers[i].thread);
    }
    return all;
}

/* monarch_engine_free - stops all threads and frees the engine. Running copies end at
 * their next chunk and leave no file; queued orders are dropped.
 *
 * A thread that sleeps in a system call on a file system that does not answer cannot be
 * stopped. After `timeout_ms` it is detached, the engine is not freed and the result is
 * -ETIMEDOUT: the segments must then stay mapped as well. When its call returns, the
 * thread removes its temporary file and ends. */
int monarch_engine_free(struct engine *e, uint32_t timeout_ms)
{
    atomic_store_explicit(&e->stopping, true, memory_order_release);
    if (e->workers) {
        pthread_mutex_lock(&e->lock);
        idle_call_all(e);
        compaction_wake(e->compaction);
        pthread_mutex_unlock(&e->lock);
        requests_wake(e);
        if (!join_all(e, clock_ns() + timeout_ms * MS_NS))
            return -ETIMEDOUT;
    }
    release(e);
    return 0;
}
