/* engine.c - the threads of an engine, one of which waits for requests of programs while the others
 * run Transfers; and its beginning and end. */
#include "dataplane/api/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/demand/hints.h"
#include "dataplane/extents/eviction.h"
#include "dataplane/extents/packs.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/seal.h"
#include "dataplane/sources/siblings.h"
#include "dataplane/transfers/compaction.h"
#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/idle_packing.h"
#include "dataplane/transfers/transfer.h"

enum { FAILED_START_TIMEOUT_MS = 5000 }; /* its threads are idle */

/* follow_hints - begins a File that a program will open, if there is space for it; true: the lock
 * was released meanwhile, so that other work may be queued by now. */
static bool follow_hints(struct engine *e)
{
    if (!hints_wanted(&e->demand) || !scheduler_has_room(&e->transfers))
        return false;
    pthread_mutex_unlock(&e->transfers.lock);
    hints_begin(&e->demand);
    pthread_mutex_lock(&e->transfers.lock);
    return true;
}

/* follow_packing - makes space for Files that are to be packed, outside the lock; false: none has
 * requested it. */
static bool follow_packing(struct engine *e)
{
    if (!e->eviction)
        return false;
    pthread_mutex_unlock(&e->transfers.lock);
    bool followed = eviction_resume_packing(e->eviction);
    pthread_mutex_lock(&e->transfers.lock);
    return followed;
}

/* look - checks the slots of programs, then takes the Transfer to run now. */
static struct transfer *look(struct engine *e)
{
    e->transfers.looking++;
    pthread_mutex_unlock(&e->transfers.lock);
    requests_poll(&e->demand);
    pthread_mutex_lock(&e->transfers.lock);
    struct transfer *t = scheduler_take(&e->transfers);
    e->transfers.looking--;
    return t;
}

/* find_transfer - returns the Transfer to run now. Without one, this thread answers calls from now
 * on, looks again for missed work, and waits: NULL. */
static struct transfer *find_transfer(struct engine *e)
{
    struct transfer *t = look(e);
    if (t || follow_hints(e) || follow_packing(e))
        return t;
    idle_answer(&e->transfers);
    t = look(e);
    if (t)
        return t;
    scheduler_wait(&e->transfers);
    idle_answer(&e->transfers);
    return NULL;
}

/* run_transfer - runs a Transfer with the buffer that was used last, which the processors still
 * have in their caches; under the lock, except for the Transfer itself. */
static bool run_transfer(struct engine *e, struct transfer *t)
{
    uint32_t number = e->transfers.unused[--e->transfers.unused_count];
    uint8_t *buffer = e->transfers.buffers + (size_t)number * TRANSFER_BUFFER_BYTES;
    pthread_mutex_unlock(&e->transfers.lock);
    bool ended = transfer_run(&e->transfers, t, buffer);
    pthread_mutex_lock(&e->transfers.lock);
    e->transfers.unused[e->transfers.unused_count++] = number;
    return ended;
}

/* run_transfers - runs the Transfers that the scheduler selects. */
static void run_transfers(struct engine *e)
{
    pthread_mutex_lock(&e->transfers.lock);
    while (!job_stopping(&e->job)) {
        struct transfer *t = find_transfer(e);
        if (!t)
            continue;
        threads_for_demand(&e->transfers);
        scheduler_return(&e->transfers, t, run_transfer(e, t));
    }
    pthread_mutex_unlock(&e->transfers.lock);
}

static void *work(void *worker)
{
    const struct worker *w = worker;
    struct engine *e = w->engine;
    vector_registers_reset();
    if (w->copies)
        run_transfers(e);
    else
        requests_listen(&e->demand);
    pthread_mutex_lock(&e->transfers.lock);
    e->transfers.running--;
    pthread_cond_broadcast(&e->transfers.ended);
    pthread_mutex_unlock(&e->transfers.lock);
    return NULL;
}

/* ---- callbacks ---------------------------------------------------------------------- */

static void judge(void *engine, uint32_t file)
{
    report_file(&((struct engine *)engine)->transfers, file);
}

static bool hints_wait_for(const void *demand)
{
    return hints_wanted(demand);
}

/* may_hint - hints may begin a File, whatever its Source. */
static bool may_hint(const void *demand)
{
    const struct fetcher *f = &((const struct demand *)demand)->fetcher;
    return !f->of || f->has_room(f->of);
}

static bool may_fill(const void *demand)
{
    return fill_may_read(demand);
}

static bool next_fill(void *demand, struct monarch_order *out)
{
    return fill_read(demand, out);
}

/* ---- beginning and end -------------------------------------------------------------- */

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

static int init_locks(struct transfers *ts)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    if (rc)
        return -rc;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&ts->ended, &attributes);
    rc = rc ? rc : pthread_cond_init(&ts->readers.freed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&ts->lock, NULL);
    pthread_mutex_init(&ts->seals_lock, NULL);
    return -rc;
}

/* make_extents - creates the state of Files and the accounts of their space. Hints are first, as
 * the Files that they announce stay. */
static int make_extents(struct engine *e)
{
    const struct packings how = {e->transfers.options.packings,
                                 e->transfers.options.packing_count};
    bool pools = e->table && e->job.catalog->tier_count > e->table->options.tiers;
    int rc = 0;
    if (pools && e->job.flags->opened)
        rc = hints_new(&e->demand, &e->demand.hints);
    const struct claims *claims = e->demand.hints ? &e->demand.hints->claims : NULL;
    if (!rc && pools)
        rc = pool_new(&e->job, e->table, claims, &e->pool);
    if (!rc && e->pool && how.count)
        rc = packs_new(&e->job, e->table, &how, &e->packs);
    if (!rc && e->table && e->job.flags->recency)
        rc = eviction_new(&e->job, e->table, e->packs, claims, &e->eviction);
    return rc ? rc : partials_new(&e->job, e->table, e->packs, &e->partials);
}

/* compose - connects the parts of the engine. */
static void compose(struct engine *e)
{
    struct transfers *ts = &e->transfers;
    struct demand *d = &e->demand;
    ts->packs = d->packs = e->packs;
    ts->partials = d->partials = e->partials;
    ts->pool = d->pool = e->pool;
    d->eviction = e->eviction;
    ts->unasked = (struct unasked_work){.of = d,
                                        .hints_wait = hints_wait_for,
                                        .may_hint = may_hint,
                                        .may_fill = may_fill,
                                        .next_fill = next_fill,
                                        .pages = &route_pages};
}

static int make_threads(struct engine *e)
{
    struct transfers *ts = &e->transfers;
    uint32_t threads = ts->options.threads;
    ts->buffers = aligned_alloc(4096, (size_t)threads * TRANSFER_BUFFER_BYTES);
    ts->workers = calloc(threads + 1, sizeof(*ts->workers));
    ts->unused = calloc(threads, sizeof(*ts->unused));
    if (!ts->buffers || !ts->workers || !ts->unused)
        return -ENOMEM;
    while (ts->unused_count < threads) {
        ts->unused[ts->unused_count] = ts->unused_count;
        ts->unused_count++;
    }
    pthread_mutex_lock(&ts->lock);
    ts->thread_body = work;
    ts->engine = e;
    int rc = threads_start(ts);
    if (!rc && e->packs)
        rc = compaction_start(ts, &e->compaction);
    pthread_mutex_unlock(&ts->lock);
    return rc;
}

/* start - allocates what the engine owns; release() must follow, even after a failure. */
static int start(struct engine *e)
{
    struct transfers *ts = &e->transfers;
    job_open_tiers(&e->job);
    int rc = event_fd_open(&ts->event_fd);
    rc = rc ? rc : init_locks(ts);
    rc = rc ? rc : scheduler_init(ts);
    rc = rc ? rc : make_extents(e);
    rc = rc ? rc : siblings_new(&e->job, ts->options.shares_memory, &ts->siblings);
    if (!rc)
        compose(e);
    if (!rc && e->pool)
        rc = pool_queue_new(&e->demand, &e->demand.pool_queue);
    if (!rc && e->packs)
        rc = deferred_new(&ts->deferred);
    if (!rc && e->packs)
        rc = idle_packing_new(&ts->idle_packing);
    if (!rc && ts->options.seal_key)
        rc = sealer_new(ts->options.seal_key, e->job.catalog->digest, &ts->sealer);
    ts->options.seal_key = NULL; /* sealer_new() has copied it */
    return rc ? rc : make_threads(e);
}

static void release(struct engine *e)
{
    struct transfers *ts = &e->transfers;
    compaction_free(e->compaction);
    scheduler_free(ts); /* before the Tiers, which parked Transfers use */
    if (e->packs && e->partials && ts->options.retains)
        pack_adoption_seal(e->partials);
    partials_free(e->partials);
    deferred_free(ts->deferred);
    idle_packing_free(ts->idle_packing);
    eviction_free(e->eviction);
    packs_free(e->packs);
    pool_queue_free(e->demand.pool_queue);
    pool_free(e->pool);
    hints_free(e->demand.hints);
    sealer_free(ts->sealer);
    siblings_free(ts->siblings);
    job_close_tiers(&e->job);
    event_fd_close(&ts->event_fd);
    free(ts->buffers);
    free(ts->unused);
    free(ts->workers);
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
    e->job.catalog = segments->catalog;
    e->job.root_count = e->job.catalog->root_count;
    e->job.flags = segments->flags;
    e->job.requests = segments->requests;
    e->job.inodes = segments->inodes;
    e->job.euid = geteuid();
    e->job.judge = judge;
    e->job.judge_of = e;
    pthread_mutex_init(&e->job.inodes_lock, NULL);
    e->table = options->table;
    if (e->table)
        e->table->flags = e->job.flags;
    e->transfers.job = e->demand.job = &e->job;
    e->transfers.table = e->demand.table = e->table;
    e->transfers.options = *options;
    e->transfers.readers.limit = options->readers_max;
    e->transfers.links_by_path = access("/proc/self/fd", X_OK) == 0;
    atomic_store(&e->transfers.links_by_fd, true);
    e->demand.transfers = &e->transfers;
    e->demand.fill.mean_bytes = mean_bytes(e->table);
    int rc = start(e);
    if (rc) {
        monarch_engine_free(e, FAILED_START_TIMEOUT_MS);
        return rc;
    }
    *out = e;
    return 0;
}

/* monarch_engine_set_background - permits `n` background Transfers at once, at most background_max,
 * and `beside` while programs wait for others. Transfers beyond that stop at their next chunk, or
 * end. */
void monarch_engine_set_background(struct engine *e, uint32_t n, uint32_t beside)
{
    struct demand_time stale;
    pthread_mutex_lock(&e->transfers.lock);
    e->transfers.background_limit = n < e->transfers.options.background_max
                                        ? n
                                        : e->transfers.options.background_max;
    e->transfers.background_beside = beside;
    e->transfers.limits++;
    while (ring_pop(&e->transfers.demands, &stale)) {
    }
    threads_start(&e->transfers); /* the existing ones do the work if it fails */
    idle_call_all(&e->transfers);
    pthread_mutex_unlock(&e->transfers.lock);
}

/* monarch_engine_event_fd - returns an fd, readable while Python has results to collect; the engine
 * empties it. */
int monarch_engine_event_fd(const struct engine *e)
{
    return e->transfers.event_fd.fd;
}

/* join_all - joins the threads until a deadline; false: one of them hangs. */
static bool join_all(struct engine *e, uint64_t until_ns)
{
    const struct timespec until = clock_timespec(until_ns);
    int rc = 0;
    pthread_mutex_lock(&e->transfers.lock);
    while (e->transfers.running && !rc)
        rc = pthread_cond_timedwait(&e->transfers.ended, &e->transfers.lock, &until);
    bool all = e->transfers.running == 0;
    uint32_t started = e->transfers.started;
    pthread_mutex_unlock(&e->transfers.lock);
    for (uint32_t i = 0; i < started; i++) {
        if (all)
            pthread_join(e->transfers.workers[i].thread, NULL);
        else
            pthread_detach(e->transfers.workers[i].thread);
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
    atomic_store_explicit(&e->job.stopping, true, memory_order_release);
    if (e->transfers.workers) {
        pthread_mutex_lock(&e->transfers.lock);
        idle_call_all(&e->transfers);
        compaction_wake(e->compaction);
        pthread_mutex_unlock(&e->transfers.lock);
        job_ring(&e->job);
        if (!join_all(e, clock_ns() + timeout_ms * MS_NS))
            return -ETIMEDOUT;
    }
    release(e);
    return 0;
}
