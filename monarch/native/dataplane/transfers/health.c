/* health.c - detects roots whose origin does not answer.
 *
 * A call on a file system that does not answer never returns and cannot be interrupted. When all
 * threads of a root are in such calls, the Files of the root are marked busy: programs that wait
 * for them open the origin at once. The Transfers go on, and their results are published if the
 * calls return.
 */
#include "dataplane/transfers/transfers.h"

#include "dataplane/extents/replica_state.h"
#include "dataplane/transfers/transfer.h"

/* A root is silent after twice the time of its slowest step, within these limits. */
static const uint64_t SILENT_NS = SECOND_NS, SILENT_MAX_NS = 4 * SECOND_NS;
/* A read should end in this time, so that waiting programs and peers see progress. */
static const uint64_t PIECE_NS = SECOND_NS / 4;
/* The least latency for which requests are widened. */
static const uint64_t LATENCY_NS = SECOND_NS / 10000;

enum {
    PIECE_MIN = 64 << 10,
    SMALL_BYTES = 16 << 10,  /* of a read that measures the latency */
    PIECE_FIRST = 256 << 10, /* while the rate of the origin is unknown */
    PIECE_MAX = READ_CHUNKS_MAX * CHUNK_BYTES,
};

/* health_note_step - notes that a system call for this Transfer has returned; called by
 * the thread that runs it. */
void health_note_step(struct transfers *ts, struct transfer *t)
{
    struct root_queue *q = &ts->roots[t->turn.queue];
    uint64_t now = clock_ns();
    uint64_t took = now - atomic_exchange_explicit(&t->turn.moved_ns, now,
                                                   memory_order_relaxed);
    if (took < SILENT_MAX_NS &&
        took > atomic_load_explicit(&q->slowest_ns, memory_order_relaxed))
        atomic_store_explicit(&q->slowest_ns, took, memory_order_relaxed);
    atomic_store_explicit(&q->progress_ns, now, memory_order_relaxed);
}

/* health_note_wait - notes that a Transfer begins or ends a wait for others or peers: only
 * Transfers that read the origin show whether it answers. */
void health_note_wait(struct transfer *t, bool waits)
{
    atomic_store_explicit(&t->turn.moved_ns, clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&t->turn.waits, waits, memory_order_relaxed);
}

/* piece_of - returns the piece of a queue; 0 means PIECE_FIRST. */
static uint32_t piece_of(const struct root_queue *q)
{
    uint32_t piece = atomic_load_explicit(&q->piece, memory_order_relaxed);
    return piece ? piece : PIECE_FIRST;
}

/* health_piece - returns how many of the next n bytes to read at once: few from a slow origin, so
 * that each piece shows progress. */
size_t health_piece(const struct transfers *ts, const struct transfer *t, size_t n)
{
    uint32_t piece = piece_of(&ts->roots[t->turn.queue]);
    return n < piece ? n : piece;
}

/* average - moves a value by an eighth of the difference to a new one. */
static void average(_Atomic uint64_t *value, uint64_t now)
{
    uint64_t before = atomic_load_explicit(value, memory_order_relaxed);
    atomic_store_explicit(value, before ? (7 * before + now) / 8 : now,
                          memory_order_relaxed);
}

/* note_cost - notes the duration of a read of n bytes: small reads measure the latency of the
 * origin, large ones its rate. */
static void note_cost(struct root_queue *q, size_t n, uint64_t ns)
{
    uint64_t pages = (n + PAGE_BYTES - 1) / PAGE_BYTES;
    uint64_t latency = atomic_load_explicit(&q->latency_ns, memory_order_relaxed);
    uint64_t bytes_ns = pages * atomic_load_explicit(&q->page_ns, memory_order_relaxed);
    if (n >= BLOCK_BYTES)
        average(&q->page_ns, (ns > 2 * latency ? ns - latency : ns / 2) / pages + 1);
    else if (n <= SMALL_BYTES)
        average(&q->latency_ns, ns > bytes_ns ? ns - bytes_ns : 1);
}

/* health_widest - returns to how many Pages (a power of two) a request of a root's origin may be
 * widened for at most a quarter more time; 1 where requests cost little. */
uint32_t health_widest(const struct transfers *ts, uint32_t root)
{
    const struct root_queue *q = &ts->roots[root];
    uint64_t page_ns = atomic_load_explicit(&q->page_ns, memory_order_relaxed);
    uint64_t latency = atomic_load_explicit(&q->latency_ns, memory_order_relaxed);
    uint64_t pages = page_ns && latency >= LATENCY_NS ? latency / page_ns / 4 : 1;
    uint32_t widest = 1;
    while (widest < BLOCK_PAGES && 2 * widest <= pages)
        widest *= 2;
    return widest;
}

/* health_note_piece - notes the duration of a read of n bytes: the next ones are smaller if it was
 * long, and larger if the origin would deliver twice as much in PIECE_NS. */
void health_note_piece(struct transfers *ts, const struct transfer *t, size_t n,
                       uint64_t ns)
{
    struct root_queue *q = &ts->roots[t->turn.queue];
    uint32_t piece = piece_of(q), next = piece;
    note_cost(q, n, ns);
    if (ns > PIECE_NS)
        next = piece / 2 < PIECE_MIN ? PIECE_MIN : piece / 2;
    else if (piece < PIECE_MAX && n * PIECE_NS > 2 * ns * piece)
        next = 2 * piece;
    if (next != piece)
        atomic_store_explicit(&q->piece, next, memory_order_relaxed);
}

static uint64_t silence_max(const struct root_queue *q)
{
    uint64_t limit = 2 * atomic_load_explicit(&q->slowest_ns, memory_order_relaxed);
    limit = limit < SILENT_NS ? SILENT_NS : limit;
    return limit < SILENT_MAX_NS ? limit : SILENT_MAX_NS;
}

static bool waits(const struct transfer *t)
{
    return atomic_load_explicit(&t->turn.waits, memory_order_relaxed);
}

/* hangs - the current call of a Transfer takes longer than silence_max(). */
static bool hangs(const struct root_queue *q, const struct transfer *t, uint64_t now)
{
    uint64_t moved = atomic_load_explicit(&t->turn.moved_ns, memory_order_relaxed);
    return t->turn.running && !waits(t) && moved + silence_max(q) < now;
}

/* set_busy - marks the Files of a root with orders busy, so that no program waits, or not busy. */
static void set_busy(struct transfers *ts, uint32_t root, bool busy)
{
    const struct root_queue *q = &ts->roots[root];
    for (int class = 0; class < CLASS_COUNT; class ++)
        for (uint32_t i = 0; i < q->orders[class].count; i++) {
            const struct queued_order *w = ring_at(&q->orders[class], i);
            replica_state_set_busy(ts->job->catalog, w->order.file, busy);
        }
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct transfer *t = &ts->transfers[i];
        if (t->turn.queue == root && t->order.file != NONE32)
            replica_state_set_busy(ts->job->catalog, t->order.file, busy);
    }
}

/* set_lost - takes hanging threads out of the share of a root that answers again. */
static void set_lost(struct transfers *ts, uint32_t root, uint64_t now)
{
    struct root_queue *q = &ts->roots[root];
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        struct transfer *t = &ts->transfers[i];
        if (t->turn.queue == root && !t->turn.lost && hangs(q, t, now)) {
            t->turn.lost = true;
            q->lost++;
            q->running--;
            q->background_begun -= order_class(t->order.kind) == CLASS_BACKGROUND;
            q->background_running -= order_class(t->order.kind) == CLASS_BACKGROUND;
        }
    }
}

/* is_silent - all threads of a root hang, except those that wait for others. */
static bool is_silent(const struct transfers *ts, uint32_t root, uint64_t now)
{
    const struct root_queue *q = &ts->roots[root];
    uint64_t last = atomic_load_explicit(&q->progress_ns, memory_order_relaxed);
    if (last + silence_max(q) >= now)
        return false;
    uint32_t hung = 0, waiting = 0;
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct transfer *t = &ts->transfers[i];
        bool runs = t->turn.queue == root && t->turn.running && !t->turn.lost;
        hung += runs && hangs(q, t, now);
        waiting += runs && waits(t);
    }
    return hung + waiting == q->running && q->running + q->lost > 0 &&
           (hung > 0 || q->lost == ts->root_threads);
}

/* check_root - updates the state of one root; true if it is stalled. */
static bool check_root(struct transfers *ts, uint32_t root, uint64_t now)
{
    struct root_queue *q = &ts->roots[root];
    bool moved = atomic_load_explicit(&q->progress_ns, memory_order_relaxed) >
                 q->stalled_ns;
    if (q->stalled && moved) {
        set_lost(ts, root, now);
        q->stalled = q->lost == ts->root_threads;
        if (!q->stalled)
            set_busy(ts, root, false);
    } else if (!q->stalled && is_silent(ts, root, now)) {
        q->stalled = true;
        q->stalled_ns = now;
    }
    if (q->stalled)
        set_busy(ts, root, true);
    return q->stalled;
}

static struct monarch_health check_roots(struct transfers *ts, uint64_t now)
{
    struct monarch_health found = {0};
    for (uint32_t root = 0; root < ts->job->root_count; root++)
        found.stalled |= (uint64_t)check_root(ts, root, now) << root;
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct transfer *t = &ts->transfers[i];
        if (!t->turn.running || !hangs(&ts->roots[t->turn.queue], t, now))
            continue;
        if (order_class(t->order.kind) == CLASS_DEMAND)
            found.stuck_demand++;
        else
            found.stuck_background++;
    }
    return found;
}

/* health_check - updates the state of all roots; called with each heartbeat. */
void health_check(struct transfers *ts)
{
    pthread_mutex_lock(&ts->lock);
    struct monarch_health found = check_roots(ts, clock_ns());
    if (found.stalled != ts->health.stalled ||
        found.stuck_demand != ts->health.stuck_demand ||
        found.stuck_background != ts->health.stuck_background) {
        ts->health = found;
        ts->health_changed = true;
        idle_call_all(ts); /* other orders may begin now */
        reports_signal(ts);
    }
    pthread_mutex_unlock(&ts->lock);
}

/* health_check_stalled - updates the state at once while an origin does not answer, so that
 * programs soon know when it does again. */
void health_check_stalled(struct transfers *ts)
{
    pthread_mutex_lock(&ts->lock);
    bool stalled = ts->health.stalled != 0;
    pthread_mutex_unlock(&ts->lock);
    if (stalled)
        health_check(ts);
}

/* health_report - reports the health at the last heartbeat. */
void health_report(struct transfers *ts, struct monarch_health *out)
{
    pthread_mutex_lock(&ts->lock);
    *out = ts->health;
    ts->health_changed = false;
    reports_signal(ts);
    pthread_mutex_unlock(&ts->lock);
}
