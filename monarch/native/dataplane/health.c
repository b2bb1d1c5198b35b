/* health.c - whether the origin of each root still answers.
 *
 * A call on a file system that does not answer never returns and cannot be interrupted.
 * Where all threads of a root are in such calls, programs are told not to wait: those that
 * do go to the origin at once. The Transfers go on: what comes in at last is published.
 */
#include "dataplane/health.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/queue.h"
#include "dataplane/transfer.h"
#include "shared/catalog.h"

/* A slow origin is no dead one: twice its slowest step so far may pass. */
static const uint64_t SILENT_NS = SECOND_NS, SILENT_MAX_NS = 4 * SECOND_NS;
static const uint64_t SLOW_CHUNK_NS = SECOND_NS / 4;

enum { PIECE_BYTES = 64 << 10 };

/* health_note_step - a call for this Transfer has returned; by the thread that runs it. */
void health_note_step(struct engine *e, struct transfer *t)
{
    struct root_queue *q = &e->roots[t->queue];
    uint64_t now = clock_ns();
    uint64_t took = now -
                    atomic_exchange_explicit(&t->moved_ns, now, memory_order_relaxed);
    if (took < SILENT_MAX_NS &&
        took > atomic_load_explicit(&q->slowest_ns, memory_order_relaxed))
        atomic_store_explicit(&q->slowest_ns, took, memory_order_relaxed);
    atomic_store_explicit(&q->progress_ns, now, memory_order_relaxed);
}

/* health_piece - how many of the next n bytes to ask for at once: of a slow origin few, so
 * that it shows that they come. */
size_t health_piece(const struct engine *e, const struct transfer *t, size_t n)
{
    const struct root_queue *q = &e->roots[t->queue];
    bool slow = atomic_load_explicit(&q->slow, memory_order_relaxed);
    return slow && n > PIECE_BYTES ? PIECE_BYTES : n;
}

/* health_note_chunk - a whole chunk was read in this time. */
void health_note_chunk(struct engine *e, const struct transfer *t, uint64_t ns)
{
    atomic_store_explicit(&e->roots[t->queue].slow, ns > SLOW_CHUNK_NS,
                          memory_order_relaxed);
}

static uint64_t silence_max(const struct root_queue *q)
{
    uint64_t limit = 2 * atomic_load_explicit(&q->slowest_ns, memory_order_relaxed);
    limit = limit < SILENT_NS ? SILENT_NS : limit;
    return limit < SILENT_MAX_NS ? limit : SILENT_MAX_NS;
}

/* hangs - a thread is in one call for longer than any may take. */
static bool hangs(const struct root_queue *q, const struct transfer *t, uint64_t now)
{
    uint64_t moved = atomic_load_explicit(&t->moved_ns, memory_order_relaxed);
    return t->running && moved + silence_max(q) < now;
}

/* tell_waiting - changes the reason of a File that is being staged. The Transfer may
 * publish it at this moment: that is not to be undone. */
static void tell_waiting(struct engine *e, uint32_t file, bool busy)
{
    if (file >= e->catalog->file_count)
        return;
    _Atomic uint32_t *word = (_Atomic uint32_t *)(uintptr_t)replica_word(e->catalog,
                                                                         file);
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t from = busy ? REASON_NONE : REASON_BUSY,
             to = busy ? REASON_BUSY : REASON_NONE;
    if (STATE_OF(seen) != REPLICA_STAGING || STATE_REASON(seen) != from)
        return;
    uint32_t next = STATE_WORD(REPLICA_STAGING, STATE_TIER(seen), to);
    if (atomic_compare_exchange_strong(word, &seen, next) && busy)
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* tell_all - programs are to wait for no File of this root, or may wait again. */
static void tell_all(struct engine *e, uint32_t root, bool busy)
{
    const struct root_queue *q = &e->roots[root];
    for (int class = 0; class < CLASS_COUNT; class ++)
        for (uint32_t i = 0; i < q->orders[class].count; i++) {
            const struct waiting *w = ring_at(&q->orders[class], i);
            tell_waiting(e, w->order.file, busy);
        }
    for (uint32_t i = 0; i < e->transfer_count; i++) {
        const struct transfer *t = &e->transfers[i];
        if (t->queue == root && t->order.file != NONE32)
            tell_waiting(e, t->order.file, busy);
    }
}

/* give_up - who hangs is not waited for any more, now that others get answers. */
static void give_up(struct engine *e, uint32_t root, uint64_t now)
{
    struct root_queue *q = &e->roots[root];
    for (uint32_t i = 0; i < e->transfer_count; i++) {
        struct transfer *t = &e->transfers[i];
        if (t->queue == root && !t->lost && hangs(q, t, now)) {
            t->lost = true;
            q->lost++;
            q->running--;
            q->background_begun -= order_class(t->order.kind) == CLASS_BACKGROUND;
        }
    }
}

/* is_silent - all threads of a root hang. */
static bool is_silent(const struct engine *e, uint32_t root, uint64_t now)
{
    const struct root_queue *q = &e->roots[root];
    uint64_t last = atomic_load_explicit(&q->progress_ns, memory_order_relaxed);
    if (last + silence_max(q) >= now)
        return false;
    uint32_t hung = 0;
    for (uint32_t i = 0; i < e->transfer_count; i++) {
        const struct transfer *t = &e->transfers[i];
        hung += t->queue == root && !t->lost && hangs(q, t, now);
    }
    return hung == q->running && q->running + q->lost > 0 &&
           (hung > 0 || q->lost == e->root_threads);
}

/* judge - looks at one root; true if it stalls now. */
static bool judge(struct engine *e, uint32_t root, uint64_t now)
{
    struct root_queue *q = &e->roots[root];
    bool moved = atomic_load_explicit(&q->progress_ns, memory_order_relaxed) >
                 q->stalled_ns;
    if (q->stalled && moved) {
        give_up(e, root, now);
        q->stalled = q->lost == e->root_threads;
        if (!q->stalled)
            tell_all(e, root, false);
    } else if (!q->stalled && is_silent(e, root, now)) {
        q->stalled = true;
        q->stalled_ns = now;
    }
    if (q->stalled)
        tell_all(e, root, true);
    return q->stalled;
}

static struct monarch_health examine(struct engine *e, uint64_t now)
{
    struct monarch_health found = {0};
    for (uint32_t root = 0; root < e->root_count; root++)
        found.stalled |= (uint64_t)judge(e, root, now) << root;
    for (uint32_t i = 0; i < e->transfer_count; i++) {
        const struct transfer *t = &e->transfers[i];
        if (!t->running || !hangs(&e->roots[t->queue], t, now))
            continue;
        if (order_class(t->order.kind) == CLASS_DEMAND)
            found.stuck_demand++;
        else
            found.stuck_background++;
    }
    return found;
}

/* health_watch - looks at all roots; called with each heartbeat. */
void health_watch(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct monarch_health found = examine(e, clock_ns());
    if (found.stalled != e->health.stalled ||
        found.stuck_demand != e->health.stuck_demand ||
        found.stuck_background != e->health.stuck_background) {
        e->health = found;
        e->health_news = true;
        pthread_cond_broadcast(&e->work); /* others may begin in their place */
        engine_settle(e);
    }
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_health - as it was found with the last heartbeat. */
void monarch_engine_health(struct engine *e, struct monarch_health *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->health;
    e->health_news = false;
    engine_settle(e);
    pthread_mutex_unlock(&e->lock);
}
