/* scheduler.c - which order runs next: one queue per root and class, demand first. */
#include "dataplane/api/engine.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/transfers/deferred.h"
#include "dataplane/demand/hints.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/extents/partial.h"
#include "dataplane/peers/peer_client.h"
#include "dataplane/extents/staging_table.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"

#define THROTTLE_BURST_NS (SECOND_NS / 10) /* what an idle throttle may save up */

/* init_transfers - allocates all Transfers that can be begun at once. */
static int init_transfers(struct engine *e)
{
    uint32_t count = e->options.threads + e->options.background_max * e->root_count;
    e->transfers = calloc(count, sizeof(*e->transfers));
    if (!e->transfers || ring_init(&e->spare, sizeof(struct transfer *), count))
        return -ENOMEM;
    e->transfer_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct transfer *t = &e->transfers[i];
        t->order.file = NONE32;
        ring_push(&e->spare, &t);
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

/* background_of_root - what of its threads a root may use for background Transfers: at
 * least half of them, and all that the engine has for programs are left to these. */
static uint32_t background_of_root(const struct engine *e)
{
    uint32_t kept = e->options.threads - e->options.background_max;
    uint32_t half = e->root_threads / 2;
    return e->root_threads - (kept < half ? kept : half);
}

/* scheduler_init - creates all queues; each root gets an equal share of the threads. */
int scheduler_init(struct engine *e)
{
    uint32_t roots = e->root_count;
    e->roots = calloc(roots ? roots : 1, sizeof(*e->roots));
    e->requested_bits = calloc(e->catalog->file_count / 8 + 1, 1);
    if (!e->roots || !e->requested_bits || init_transfers(e) ||
        ring_init(&e->requested, sizeof(uint32_t), REQUESTED_MAX) ||
        ring_init(&e->demands, sizeof(struct demand_time), DEMANDS_MAX) ||
        ring_init(&e->done, sizeof(struct monarch_completion),
                  CLASS_COUNT * ORDERS_MAX))
        return -ENOMEM;
    for (uint32_t i = 0; i < roots; i++)
        if (init_root(&e->roots[i], e->options.background_max))
            return -ENOMEM;
    e->root_threads = roots > 1 ? e->options.threads / roots : e->options.threads;
    e->root_threads = e->root_threads ? e->root_threads : 1;
    e->root_background = background_of_root(e);
    e->background_limit = e->options.background_first;
    e->background_beside = e->options.background_max;
    e->throttle.bytes_per_s = e->options.bandwidth_bytes_per_s;
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
void scheduler_free(struct engine *e)
{
    for (uint32_t i = 0; e->roots && i < e->root_count; i++)
        free_root(&e->roots[i]);
    ring_free(&e->spare);
    ring_free(&e->requested);
    ring_free(&e->demands);
    ring_free(&e->done);
    free(e->roots);
    free(e->requested_bits);
    free(e->transfers);
}

/* oldest_order - the root with the oldest order of this class among the roots that may
 * use another thread; NULL: none. */
static struct root_queue *oldest_order(const struct engine *e, enum order_class class)
{
    struct root_queue *found = NULL;
    uint64_t age = UINT64_MAX;
    for (uint32_t i = 0; i < e->root_count; i++) {
        struct root_queue *q = &e->roots[i];
        const struct queued_order *w = ring_peek(&q->orders[class]);
        bool suspended = q->stalled && class == CLASS_BACKGROUND;
        if (!w || suspended || w->age >= age || !root_has_thread(e, q) ||
            (class == CLASS_BACKGROUND && q->background_begun >= e->root_background))
            continue;
        age = w->age;
        found = q;
    }
    return found;
}

/* background_full - the limit of background Transfers is reached, parked ones included;
 * those of stalled roots do not count. */
static bool background_full(const struct engine *e, uint32_t limit)
{
    uint32_t begun = 0;
    for (uint32_t i = 0; i < e->root_count; i++)
        begun += e->roots[i].stalled ? 0 : e->roots[i].background_begun;
    return begun >= limit;
}

/* background_busy - as many of them run as may. */
static bool background_busy(const struct engine *e, uint32_t limit)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < e->root_count; i++)
        running += e->roots[i].stalled ? 0 : e->roots[i].background_running;
    return running >= limit;
}

/* set_at_origin - whether a Transfer runs that may read the origin. What it is to read may
 * have changed when it ends. */
static void set_at_origin(struct engine *e, struct transfer *t, bool running)
{
    bool is = running && !transfer_is_local(t);
    if (e->table && is != t->at_origin)
        table_at_origin(e->table, is);
    t->at_origin = is;
}

static struct transfer *run_now(struct engine *e, struct transfer *t)
{
    struct root_queue *q = &e->roots[t->queue];
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    q->running++;
    q->background_running += background;
    e->demands_running += !background;
    t->running = true;
    set_at_origin(e, t, true);
    t->chunk_limits = e->limits;
    atomic_store_explicit(&t->moved_ns, clock_ns(), memory_order_relaxed);
    return t;
}

static struct transfer *begin_order(struct engine *e, struct root_queue *q,
                                    enum order_class class)
{
    struct queued_order w;
    struct transfer *t;
    if (!q || !ring_peek(&e->spare) || !ring_pop(&q->orders[class], &w))
        return NULL;
    ring_pop(&e->spare, &t);
    transfer_init(t, &w.order);
    t->age = w.age;
    t->queue = (uint32_t)(q - e->roots);
    t->limits = e->limits;
    q->background_begun += class == CLASS_BACKGROUND;
    return run_now(e, t);
}

/* throttle_charge - books bytes that are about to be read at time `now`. */
static void throttle_charge(struct throttle *t, uint64_t bytes, uint64_t now)
{
    if (!t->bytes_per_s)
        return;
    uint64_t saved = now > THROTTLE_BURST_NS ? now - THROTTLE_BURST_NS : 0;
    if (t->open_at_ns < saved)
        t->open_at_ns = saved;
    double seconds = (double)bytes / (double)t->bytes_per_s;
    t->open_at_ns += (uint64_t)(seconds * (double)SECOND_NS);
}

/* chunk_bytes - how much of the origin the next chunk of a Transfer reads. */
static uint64_t chunk_bytes(const struct engine *e, const struct transfer *t)
{
    const struct entry *file = catalog_entry(e->catalog, t->order.file, NULL);
    if (transfer_is_local(t) || !file)
        return 0;
    uint64_t left = t->begun ? t->size - t->offset : file->size;
    return left < CHUNK_BYTES ? left : CHUNK_BYTES;
}

/* may_hint - hints may begin a File, wherever it comes from. */
static bool may_hint(const struct engine *e)
{
    return hints_wanted(e) && (!e->receiver || receiver_has_room(e->receiver));
}

/* background_ready - with this limit, a background Transfer can run as soon as the
 * throttle permits, if it may read the origin. */
static bool background_ready(const struct engine *e, uint32_t limit)
{
    if (background_busy(e, limit))
        return false;
    return parked_oldest(e) || (!background_full(e, limit) &&
                                (oldest_order(e, CLASS_BACKGROUND) ||
                                 packing_waits(e) || fill_may_read(e) || may_hint(e)));
}

/* background_waits - the same, and it may. */
static bool background_waits(const struct engine *e, uint32_t limit)
{
    return readers_free(e) && background_ready(e, limit);
}

/* scheduler_has_room - a background Transfer that is begun now runs at once. */
bool scheduler_has_room(const struct engine *e)
{
    uint64_t now = clock_ns();
    uint32_t limit = pace_background(e, now);
    return now >= e->throttle.open_at_ns && !background_busy(e, limit) &&
           !background_full(e, limit) && !parked_oldest(e) &&
           !oldest_order(e, CLASS_BACKGROUND) && may_hint(e) && readers_free(e);
}

/* scheduler_is_idle - no Transfer runs for programs, and none waits. */
bool scheduler_is_idle(const struct engine *e)
{
    return !e->demands_running && !oldest_order(e, CLASS_DEMAND) &&
           !background_ready(e, e->background_limit);
}

/* push_deferred - queues the next File that is to be compressed, or the next such File that
 * a program waits for; false: none. */
static bool push_deferred(struct engine *e, bool awaited)
{
    struct monarch_order order;
    enum order_class class = awaited ? CLASS_DEMAND : CLASS_BACKGROUND;
    return e->outstanding[class] < ORDERS_MAX && deferred_next(e, awaited, &order) &&
           scheduler_push(e, &order);
}

/* queue_fill - queues the next File that is to be compressed or packed, or that of background fill. */
static struct root_queue *queue_fill(struct engine *e)
{
    struct monarch_order order;
    if (push_deferred(e, false))
        return oldest_order(e, CLASS_BACKGROUND);
    if (!packing_next(e, &order) && !fill_read(e, &order))
        return NULL;
    if (order.peer != NO_PEER || !scheduler_push(e, &order))
        packing_undo(e, &order);
    return oldest_order(e, CLASS_BACKGROUND);
}

static struct transfer *take_background(struct engine *e)
{
    struct root_queue *q = parked_oldest(e);
    struct transfer *t;
    if (!q) {
        q = oldest_order(e, CLASS_BACKGROUND);
        return begin_order(e, q ? q : queue_fill(e), CLASS_BACKGROUND);
    }
    ring_pop(&q->parked, &t);
    return run_now(e, t);
}

/* scheduler_want - a program of another node waits for a File: if fill has begun it, it
 * goes on as demand. */
void scheduler_want(struct engine *e, uint32_t file)
{
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->transfer_count; i++)
        if (e->transfers[i].order.file == file)
            e->transfers[i].wanted = true;
    scheduler_call(e);
    pthread_mutex_unlock(&e->lock);
}

/* scheduler_want_blocks - a program waits for Blocks: what fill of another node has asked for
 * of them, and no thread has begun, goes on as demand. */
void scheduler_want_blocks(struct engine *e, const struct block_want *wanted)
{
    uint32_t root = 0;
    struct queued_order w;
    catalog_entry(e->catalog, wanted->file, &root);
    pthread_mutex_lock(&e->lock);
    struct ring *orders = e->roots[root].orders;
    for (uint32_t n = orders[CLASS_BACKGROUND].count; n; n--) {
        ring_pop(&orders[CLASS_BACKGROUND], &w);
        bool raised = order_has_blocks(&w.order, wanted) &&
                      e->outstanding[CLASS_DEMAND] < ORDERS_MAX;
        if (raised) {
            w.order.kind &= (uint8_t)~MONARCH_BACKGROUND;
            w.order.kind |= MONARCH_ASKED;
            e->outstanding[CLASS_BACKGROUND]--;
            e->outstanding[CLASS_DEMAND]++;
        }
        ring_push(&orders[raised ? CLASS_DEMAND : CLASS_BACKGROUND], &w);
    }
    scheduler_call(e);
    threads_for_demand(e);
    pthread_mutex_unlock(&e->lock);
}

/* take_demand - what programs wait for; calls another thread for what is left. */
static struct transfer *take_demand(struct engine *e)
{
    struct transfer *t = begin_order(e, oldest_order(e, CLASS_DEMAND), CLASS_DEMAND);
    if (t && oldest_order(e, CLASS_DEMAND))
        idle_call(e);
    if (t)
        return t;
    t = parked_take_awaited(e);
    return t ? run_now(e, t) : NULL;
}

/* hurry_packing - Files in the Pool are packed before all else while it is short of room, and
 * Files that have come plain if a program waits for them. */
static void hurry_packing(struct engine *e)
{
    struct monarch_order order;
    while (push_deferred(e, true)) {
    }
    while (packing_hurries(e) && packing_next(e, &order)) {
        order.kind &= (uint8_t)~MONARCH_BACKGROUND;
        if (!scheduler_push(e, &order)) {
            packing_undo(e, &order);
            break;
        }
    }
}

/* scheduler_take - the Transfer to run now, or NULL: demand first, then parked
 * background Transfers, then new ones. */
struct transfer *scheduler_take(struct engine *e)
{
    hurry_packing(e);
    struct transfer *t = take_demand(e);
    uint64_t now = t ? 0 : clock_ns();
    bool ready = !t && background_ready(e, pace_background(e, now));
    e->readers.lacking = ready && !readers_free(e);
    if (t || !ready || e->readers.lacking || now < e->throttle.open_at_ns)
        return t;
    t = take_background(e);
    if (t) {
        readers_reserve(e, t);
        throttle_charge(&e->throttle, chunk_bytes(e, t), now);
    }
    if (t && background_waits(e, pace_background(e, now)))
        idle_call(e); /* all may have waited for demand to end */
    return t;
}

/* scheduler_call - calls an idle thread if there is something to do. */
void scheduler_call(struct engine *e)
{
    if (oldest_order(e, CLASS_DEMAND) ||
        background_waits(e, pace_background(e, clock_ns())))
        idle_call(e);
}

/* scheduler_wait - sleeps until there may be a Transfer to run. */
void scheduler_wait(struct engine *e)
{
    uint64_t now = clock_ns(), until_ns = e->demand_ns + DEMAND_HOLD_NS;
    bool forever = false;
    if (background_waits(e, pace_background(e, now)))
        until_ns = e->throttle.open_at_ns; /* perhaps it is open by now */
    else
        forever = now >= until_ns || !background_waits(e, e->background_limit);
    struct timespec most = clock_timespec(until_ns > now ? until_ns - now : 0);
    engine_signal(e);
    e->idle++;
    pthread_mutex_unlock(&e->lock);
    if (!engine_stopping(e))
        idle_wait(e, forever ? NULL : &most);
    pthread_mutex_lock(&e->lock);
    e->idle--;
}

/* stop_running - returns the thread to the share of the root. */
static void stop_running(struct engine *e, struct transfer *t)
{
    struct root_queue *q = &e->roots[t->queue];
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    if (t->lost) {
        q->lost--;
    } else {
        q->running--;
        q->background_running -= background;
    }
    t->running = false;
    set_at_origin(e, t, false);
    if (!background) {
        e->demands_running--;
        e->demand_ns = clock_ns();
    }
}

/* scheduler_return - completes a Transfer that has ended and parks any other. Programs
 * have been woken already. */
void scheduler_return(struct engine *e, struct transfer *t, bool ended)
{
    struct root_queue *q = &e->roots[t->queue];
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    stop_running(e, t);
    readers_give_back(e, t);
    if (t->lost && background)
        q->background_begun++; /* it was taken off when it was given up */
    t->lost = false;
    if (!ended) {
        pace_read(e, t);
        parked_add(q, t);
        return;
    }
    q->background_begun -= background;
    pace_file(e, t);
    t->order.file = NONE32;
    report_completion(e, &t->completion);
    ring_push(&e->spare, &t);
}

/* push_order - queues an order at its root; the Transfer rejects an invalid File. */
static void push_order(struct engine *e, const struct monarch_order *order,
                       enum order_class class)
{
    const struct queued_order w = {.order = *order, .age = e->age++};
    uint32_t root = 0;
    catalog_entry(e->catalog, order->file, &root);
    ring_push(&e->roots[root].orders[class], &w);
}

/* scheduler_push - queues an order that the table has begun; false: there are too many.
 * The caller holds the lock. */
bool scheduler_push(struct engine *e, const struct monarch_order *order)
{
    enum order_class class = order_class(order->kind);
    if (e->outstanding[class] == ORDERS_MAX)
        return false;
    e->outstanding[class]++;
    if (e->partials)
        partial_expect(e, order);
    push_order(e, order, class);
    if (!e->looking)
        idle_call(e);
    threads_for_demand(e);
    return true;
}
