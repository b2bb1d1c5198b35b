/* pool_queue.c - Files that wait for space in the Pool, in the order of the programs' requests. */
#include "dataplane/demand/demand.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/extents/eviction.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table.h"

enum { QUEUE_MAX = 1024 };

/* How long a File waits for space. */
static const uint64_t WAIT_NS = SECOND_NS / 10;

struct timed { /* a File, and since when */
    uint32_t file;
    uint64_t at_ns;
};

struct pool_queue {
    struct demand *demand;
    pthread_mutex_t lock; /* guards the rest; before that of the Pool */
    struct ring queue;    /* struct timed: Files that wait */
    struct ring busy;     /* struct refused: Files that waited too long */
    uint8_t *queued;      /* a bit per File: it is in the queue */
};

/* pool_queue_new - creates an empty queue; pool_queue_free() must follow, even after a failure. */
int pool_queue_new(struct demand *d, struct pool_queue **out)
{
    struct pool_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return -ENOMEM;
    *out = q;
    q->demand = d;
    pthread_mutex_init(&q->lock, NULL);
    q->queued = calloc(d->job->catalog->file_count / 8 + 1, 1);
    if (!q->queued || ring_init(&q->queue, sizeof(struct timed), QUEUE_MAX) ||
        ring_init(&q->busy, sizeof(struct refused), QUEUE_MAX))
        return -ENOMEM;
    return 0;
}

/* pool_queue_free - frees the queue; no thread uses it any more. */
void pool_queue_free(struct pool_queue *q)
{
    if (!q)
        return;
    ring_free(&q->queue);
    ring_free(&q->busy);
    free(q->queued);
    free(q);
}

static void set_queued(struct pool_queue *q, uint32_t file, bool queued)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (queued)
        q->queued[file / 8] |= bit;
    else
        q->queued[file / 8] &= (uint8_t)~bit;
}

static bool is_queued(const struct pool_queue *q, uint32_t file)
{
    return q->queued[file / 8] >> file % 8 & 1;
}

/* refuse - sends programs to the origin, which is faster now than the Pool. */
static void refuse(struct pool_queue *q, uint32_t file)
{
    struct table *t = q->demand->table;
    table_count(t, &(struct monarch_tally){.transit_full = 1});
    table_refuse_busy(t, &q->busy, file);
}

/* begin - begins a File if it fits now, or can be made to. */
static enum monarch_verdict begin(struct pool_queue *q, uint32_t file,
                                  struct monarch_order *order)
{
    struct table *t = q->demand->table;
    pool_make_room(q->demand->pool, footprint(t->options.sizes[file]));
    int kind = MONARCH_ASKED | MONARCH_AWAITED;
    int verdict = eviction_begin(q->demand->eviction, q->demand->table, file, kind,
                                 order);
    if (verdict == VERDICT_POOL) {
        partial_yield_pool(q->demand->partials);
        verdict = eviction_begin(q->demand->eviction, q->demand->table, file, kind,
                                 order);
    }
    return (enum monarch_verdict)verdict;
}

/* may_wait - space will be free soon. Not while Files wait to be packed, which has the lowest
 * priority: they may stay in the Pool for long. */
static bool may_wait(const struct pool_queue *q, uint32_t file)
{
    return !table_packing_is_behind(q->demand->table, file);
}

/* pool_queue_wait - makes space for a File that the Pool had none for, or queues the File. */
void pool_queue_wait(struct pool_queue *q, uint32_t file)
{
    struct monarch_order order;
    uint64_t now = clock_ns();
    enum monarch_verdict verdict = VERDICT_NOTHING;
    pthread_mutex_lock(&q->lock);
    if (!is_queued(q, file))
        verdict = q->queue.count ? VERDICT_POOL : begin(q, file, &order);
    if (verdict == VERDICT_POOL && q->queue.count < q->queue.capacity &&
        may_wait(q, file)) {
        set_queued(q, file, true);
        ring_push(&q->queue, &(struct timed){file, now});
        job_ring(q->demand->job); /* it serves the queue, and may sleep for long */
    } else if (verdict == VERDICT_POOL) {
        refuse(q, file);
    }
    pthread_mutex_unlock(&q->lock);
    if (verdict == VERDICT_BEGUN)
        start_order(q->demand, &order);
}

/* next_of_queue - begins the first File of the queue that fits now; false: none. Files that have
 * waited too long are refused. */
static bool next_of_queue(struct pool_queue *q, struct monarch_order *order)
{
    const struct timed *first;
    uint64_t now = clock_ns();
    while ((first = ring_peek(&q->queue))) {
        struct timed one = *first;
        enum monarch_verdict verdict = begin(q, one.file, order);
        if (verdict == VERDICT_POOL && now - one.at_ns < WAIT_NS &&
            may_wait(q, one.file))
            return false;
        ring_pop(&q->queue, &one);
        set_queued(q, one.file, false);
        if (verdict == VERDICT_BEGUN)
            return true;
        if (verdict == VERDICT_POOL)
            refuse(q, one.file);
    }
    return false;
}

/* pool_queue_serve - gives free space to waiting Files; true while some wait. Called with each
 * beat, when a Replica has arrived, and when a program has opened one while Files wait. */
bool pool_queue_serve(struct pool_queue *q)
{
    struct monarch_order order;
    bool begun = true, waits = false;
    while (begun) {
        pthread_mutex_lock(&q->lock);
        pool_check_held(q->demand->pool);
        table_end_busy(q->demand->table, &q->busy);
        begun = next_of_queue(q, &order);
        waits = q->queue.count || q->busy.count;
        atomic_store_explicit((_Atomic uint32_t *)&q->demand->job->requests->pool_full,
                              q->queue.count > 0, memory_order_relaxed);
        pthread_mutex_unlock(&q->lock);
        if (begun)
            start_order(q->demand, &order);
    }
    return waits;
}
