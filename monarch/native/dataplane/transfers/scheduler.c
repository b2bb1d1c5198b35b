/* scheduler.c - chooses the next order to run: one queue per root and class, demand first. */
#include "dataplane/transfers/transfers.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"

/* init_transfers - allocates as many Transfers as can be in flight at once. */
static int init_transfers(struct transfers *ts)
{
    uint32_t count = ts->options.threads +
                     ts->options.background_max * ts->job->root_count;
    ts->transfers = calloc(count, sizeof(*ts->transfers));
    if (!ts->transfers || ring_init(&ts->spare, sizeof(struct transfer *), count))
        return -ENOMEM;
    ts->transfer_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct transfer *t = &ts->transfers[i];
        t->order.file = NONE32;
        ring_push(&ts->spare, &t);
    }
    return 0;
}

static int init_root(struct root_queue *q, uint32_t background_max)
{
    for (int class = 0; class < CLASS_COUNT; class ++)
        if (ring_init(&q->orders[class], sizeof(struct queued_order), ORDERS_MAX))
            return -ENOMEM;
    return ring_init(&q->parked, sizeof(struct transfer *), background_max + 1);
}

/* background_of_root - returns how many of its threads a root may use for background Transfers: all
 * but those that the engine keeps for programs, and at least half. */
static uint32_t background_of_root(const struct transfers *ts)
{
    uint32_t kept = ts->options.threads - ts->options.background_max;
    uint32_t half = ts->root_threads / 2;
    return ts->root_threads - (kept < half ? kept : half);
}

/* scheduler_init - creates all queues; each root gets an equal share of the threads. */
int scheduler_init(struct transfers *ts)
{
    uint32_t roots = ts->job->root_count;
    ts->roots = calloc(roots ? roots : 1, sizeof(*ts->roots));
    ts->requested_bits = calloc(ts->job->catalog->file_count / 8 + 1, 1);
    if (!ts->roots || !ts->requested_bits || init_transfers(ts) ||
        ring_init(&ts->requested, sizeof(uint32_t), REQUESTED_MAX) ||
        ring_init(&ts->demands, sizeof(struct demand_time), DEMANDS_MAX) ||
        ring_init(&ts->done, sizeof(struct monarch_completion),
                  CLASS_COUNT * ORDERS_MAX))
        return -ENOMEM;
    for (uint32_t i = 0; i < roots; i++)
        if (init_root(&ts->roots[i], ts->options.background_max))
            return -ENOMEM;
    ts->root_threads = roots > 1 ? ts->options.threads / roots : ts->options.threads;
    ts->root_threads = ts->root_threads ? ts->root_threads : 1;
    ts->root_background = background_of_root(ts);
    ts->background_limit = ts->options.background_first;
    ts->background_beside = ts->options.background_max;
    ts->throttle.bytes_per_s = ts->options.bandwidth_bytes_per_s;
    return 0;
}

static void free_root(struct root_queue *q)
{
    struct transfer *t;
    while (q->parked.items && ring_pop(&q->parked, &t))
        transfer_end(t, -ECANCELED);
    for (int class = 0; class < CLASS_COUNT; class ++)
        ring_free(&q->orders[class]);
    ring_free(&q->parked);
}

/* scheduler_free - cancels parked Transfers and frees the queues. */
void scheduler_free(struct transfers *ts)
{
    for (uint32_t i = 0; ts->roots && i < ts->job->root_count; i++)
        free_root(&ts->roots[i]);
    ring_free(&ts->spare);
    ring_free(&ts->requested);
    ring_free(&ts->demands);
    ring_free(&ts->done);
    free(ts->roots);
    free(ts->requested_bits);
    free(ts->transfers);
}

/* oldest_order - returns the root with the oldest order of this class among the roots that may use
 * another thread; NULL: none. */
static struct root_queue *oldest_order(const struct transfers *ts,
                                       enum order_class class)
{
    struct root_queue *found = NULL;
    uint64_t age = UINT64_MAX;
    for (uint32_t i = 0; i < ts->job->root_count; i++) {
        struct root_queue *q = &ts->roots[i];
        const struct queued_order *w = ring_peek(&q->orders[class]);
        bool suspended = q->stalled && class == CLASS_BACKGROUND;
        if (!w || suspended || w->age >= age || !root_has_thread(ts, q) ||
            (class == CLASS_BACKGROUND && q->background_begun >= ts->root_background))
            continue;
        age = w->age;
        found = q;
    }
    return found;
}

/* set_at_origin - counts a running Transfer that may read the origin, and stores that, as it may
 * change until the Transfer ends. */
static void set_at_origin(struct transfers *ts, struct transfer *t, bool running)
{
    bool is = running && !transfer_is_local(t);
    if (ts->table && is != t->turn.at_origin)
        table_at_origin(ts->table, is);
    t->turn.at_origin = is;
}

static struct transfer *run_now(struct transfers *ts, struct transfer *t)
{
    struct root_queue *q = &ts->roots[t->turn.queue];
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    q->running++;
    q->background_running += background;
    ts->demands_running += !background;
    t->turn.running = true;
    set_at_origin(ts, t, true);
    t->turn.chunk_limits = ts->limits;
    atomic_store_explicit(&t->turn.moved_ns, clock_ns(), memory_order_relaxed);
    return t;
}

/* begin - runs an order of a root in a spare Transfer, which must exist. */
static struct transfer *begin(struct transfers *ts, struct root_queue *q,
                              const struct queued_order *w)
{
    struct transfer *t = NULL;
    ring_pop(&ts->spare, &t);
    transfer_init(t, &w->order);
    t->turn.age = w->age;
    t->turn.queue = (uint32_t)(q - ts->roots);
    t->turn.limits = ts->limits;
    q->background_begun += order_class(w->order.kind) == CLASS_BACKGROUND;
    return run_now(ts, t);
}

static struct transfer *begin_order(struct transfers *ts, struct root_queue *q,
                                    enum order_class class)
{
    struct queued_order w;
    if (!q || !ring_peek(&ts->spare) || !ring_pop(&q->orders[class], &w))
        return NULL;
    return begin(ts, q, &w);
}

/* may_hint - hints may begin a File, whatever its Source. */
static bool may_hint(const struct transfers *ts)
{
    return hints_wait(ts) && ts->unasked.may_hint(ts->unasked.of);
}

static bool may_fill(const struct transfers *ts)
{
    return ts->unasked.of && ts->unasked.may_fill(ts->unasked.of);
}

static bool next_fill(struct transfers *ts, struct monarch_order *out)
{
    return ts->unasked.of && ts->unasked.next_fill(ts->unasked.of, out);
}

/* background_ready - with this limit, a background Transfer can run as soon as the
 * throttle permits, if it may read the origin. */
static bool background_ready(const struct transfers *ts, uint32_t limit)
{
    if (pace_is_busy(ts, limit))
        return false;
    return parked_oldest(ts) ||
           (!pace_is_full(ts, limit) &&
            (oldest_order(ts, CLASS_BACKGROUND) || packing_has_pending(ts) ||
             may_fill(ts) || may_hint(ts)));
}

/* background_waits - background_ready(), and a token to read the origin is free. */
static bool background_waits(const struct transfers *ts, uint32_t limit)
{
    return readers_free(ts) && background_ready(ts, limit);
}

/* scheduler_has_room - a background Transfer that begins now would run at once. */
bool scheduler_has_room(const struct transfers *ts)
{
    uint64_t now = clock_ns();
    uint32_t limit = pace_background(ts, now);
    return now >= ts->throttle.open_at_ns && !pace_is_busy(ts, limit) &&
           !pace_is_full(ts, limit) && !parked_oldest(ts) &&
           !oldest_order(ts, CLASS_BACKGROUND) && may_hint(ts) && readers_free(ts);
}

/* scheduler_is_idle - no demand Transfer runs, and no Transfer waits. */
bool scheduler_is_idle(const struct transfers *ts)
{
    return !ts->demands_running && !oldest_order(ts, CLASS_DEMAND) &&
           !background_ready(ts, ts->background_limit);
}

/* push_deferred - queues the next File to compress, with `awaited` the next one that a program
 * waits for; false: none. */
static bool push_deferred(struct transfers *ts, bool awaited)
{
    struct monarch_order order;
    enum order_class class = awaited ? CLASS_DEMAND : CLASS_BACKGROUND;
    return ts->outstanding[class] < ORDERS_MAX && deferred_next(ts, awaited, &order) &&
           scheduler_push(ts, &order);
}

/* queue_fill - queues the next File to compress or to pack, or of fill; returns its root. */
static struct root_queue *queue_fill(struct transfers *ts)
{
    struct monarch_order order;
    if (push_deferred(ts, false))
        return oldest_order(ts, CLASS_BACKGROUND);
    if (!packing_next(ts, &order) && !next_fill(ts, &order))
        return NULL;
    if (order.peer != NO_PEER || !scheduler_push(ts, &order))
        packing_undo(ts, &order);
    return oldest_order(ts, CLASS_BACKGROUND);
}

static struct transfer *take_background(struct transfers *ts)
{
    struct root_queue *q = parked_oldest(ts);
    struct transfer *t;
    if (!q) {
        q = oldest_order(ts, CLASS_BACKGROUND);
        return begin_order(ts, q ? q : queue_fill(ts), CLASS_BACKGROUND);
    }
    ring_pop(&q->parked, &t);
    return run_now(ts, t);
}

/* scheduler_want - continues a File that fill has begun as demand: a program of another node waits
 * for it. */
void scheduler_want(struct transfers *ts, uint32_t file)
{
    pthread_mutex_lock(&ts->lock);
    for (uint32_t i = 0; i < ts->transfer_count; i++)
        if (ts->transfers[i].order.file == file)
            ts->transfers[i].turn.wanted = true;
    scheduler_call(ts);
    pthread_mutex_unlock(&ts->lock);
}

/* scheduler_want_pages - turns orders of another node's fill that no thread has begun into demand,
 * as a program waits for their Pages. */
void scheduler_want_pages(struct transfers *ts, const struct page_want *wanted)
{
    uint32_t root = 0;
    struct queued_order w;
    catalog_entry(ts->job->catalog, wanted->file, &root);
    pthread_mutex_lock(&ts->lock);
    struct ring *orders = ts->roots[root].orders;
    for (uint32_t n = orders[CLASS_BACKGROUND].count; n; n--) {
        ring_pop(&orders[CLASS_BACKGROUND], &w);
        bool raised = order_has_pages(&w.order, wanted) &&
                      ts->outstanding[CLASS_DEMAND] < ORDERS_MAX;
        if (raised) {
            w.order.kind &= (uint8_t)~MONARCH_BACKGROUND;
            w.order.kind |= MONARCH_ASKED;
            ts->outstanding[CLASS_BACKGROUND]--;
            ts->outstanding[CLASS_DEMAND]++;
        }
        ring_push(&orders[raised ? CLASS_DEMAND : CLASS_BACKGROUND], &w);
    }
    scheduler_call(ts);
    threads_for_demand(ts);
    pthread_mutex_unlock(&ts->lock);
}

/* take_demand - takes the next Transfer for a program; calls another thread for the rest. */
static struct transfer *take_demand(struct transfers *ts)
{
    struct transfer *t = begin_order(ts, oldest_order(ts, CLASS_DEMAND), CLASS_DEMAND);
    if (t && oldest_order(ts, CLASS_DEMAND))
        idle_call(ts);
    if (t)
        return t;
    t = parked_take_awaited(ts);
    return t ? run_now(ts, t) : NULL;
}

/* take_hurried - begins to pack the next Extent of the Pool while others wait for its space and few
 * Transfers hurry. */
static struct transfer *take_hurried(struct transfers *ts)
{
    struct queued_order w = {.age = ts->age};
    uint32_t root = 0;
    if (!packing_hurries(ts) || !pace_may_hurry(ts) || !ring_peek(&ts->spare) ||
        ts->outstanding[CLASS_BACKGROUND] == ORDERS_MAX || !packing_next(ts, &w.order))
        return NULL;
    catalog_entry(ts->job->catalog, w.order.file, &root);
    if (ts->roots[root].stalled || !root_has_thread(ts, &ts->roots[root])) {
        scheduler_push(ts, &w.order);
        return NULL;
    }
    ts->age++;
    ts->outstanding[CLASS_BACKGROUND]++;
    struct transfer *t = begin(ts, &ts->roots[root], &w);
    t->turn.hurried = true;
    return t;
}

/* scheduler_take - returns the Transfer to run now, or NULL: demand first, then parked background
 * Transfers, then new ones. */
struct transfer *scheduler_take(struct transfers *ts)
{
    while (push_deferred(ts, true)) {
    }
    struct transfer *t = take_demand(ts);
    t = t ? t : take_hurried(ts);
    uint64_t now = t ? 0 : clock_ns();
    bool ready = !t && background_ready(ts, pace_background(ts, now));
    ts->readers.lacking = ready && !readers_free(ts);
    if (t || !ready || ts->readers.lacking || now < ts->throttle.open_at_ns)
        return t;
    t = take_background(ts);
    if (t) {
        readers_reserve(ts, t);
        pace_charge(ts, t, now);
    }
    if (t && background_waits(ts, pace_background(ts, now)))
        idle_call(ts); /* all may have waited for demand to end */
    return t;
}

/* scheduler_call - calls an idle thread if a Transfer can run. */
void scheduler_call(struct transfers *ts)
{
    if (oldest_order(ts, CLASS_DEMAND) ||
        background_waits(ts, pace_background(ts, clock_ns())))
        idle_call(ts);
}

/* scheduler_wait - sleeps until there may be a Transfer to run. */
void scheduler_wait(struct transfers *ts)
{
    uint64_t now = clock_ns(), until_ns = ts->demand_ns + DEMAND_HOLD_NS;
    bool forever = false;
    if (background_waits(ts, pace_background(ts, now)))
        until_ns = ts->throttle.open_at_ns; /* perhaps it is open by now */
    else
        forever = now >= until_ns || !background_waits(ts, ts->background_limit);
    struct timespec most = clock_timespec(until_ns > now ? until_ns - now : 0);
    reports_signal(ts);
    ts->idle++;
    pthread_mutex_unlock(&ts->lock);
    if (!job_stopping(ts->job))
        idle_wait(ts, forever ? NULL : &most);
    pthread_mutex_lock(&ts->lock);
    ts->idle--;
}

/* stop_running - returns the thread to the share of the root. */
static void stop_running(struct transfers *ts, struct transfer *t)
{
    struct root_queue *q = &ts->roots[t->turn.queue];
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    if (t->turn.lost) {
        q->lost--;
    } else {
        q->running--;
        q->background_running -= background;
    }
    t->turn.running = t->turn.hurried = false;
    set_at_origin(ts, t, false);
    if (!background) {
        ts->demands_running--;
        ts->demand_ns = clock_ns();
    }
}

/* scheduler_return - completes a Transfer that has ended and parks any other. Programs
 * have been woken already. */
void scheduler_return(struct transfers *ts, struct transfer *t, bool ended)
{
    struct root_queue *q = &ts->roots[t->turn.queue];
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    stop_running(ts, t);
    readers_give_back(ts, t);
    if (t->turn.lost && background)
        q->background_begun++; /* set_lost() has subtracted it */
    t->turn.lost = false;
    if (!ended) {
        pace_read(ts, t);
        parked_add(q, t);
        return;
    }
    q->background_begun -= background;
    pace_file(ts, t);
    t->order.file = NONE32;
    report_completion(ts, &t->completion);
    ring_push(&ts->spare, &t);
}

/* push_order - queues an order at its root; the Transfer rejects an invalid File. */
static void push_order(struct transfers *ts, const struct monarch_order *order,
                       enum order_class class)
{
    const struct queued_order w = {.order = *order, .age = ts->age++};
    uint32_t root = 0;
    catalog_entry(ts->job->catalog, order->file, &root);
    ring_push(&ts->roots[root].orders[class], &w);
}

/* scheduler_push - queues an order that the table has begun; false: too many are outstanding. The
 * caller holds the lock. */
bool scheduler_push(struct transfers *ts, const struct monarch_order *order)
{
    enum order_class class = order_class(order->kind);
    if (ts->outstanding[class] == ORDERS_MAX)
        return false;
    ts->outstanding[class]++;
    partial_expect(ts->partials, order);
    push_order(ts, order, class);
    if (!ts->looking)
        idle_call(ts);
    threads_for_demand(ts);
    return true;
}
