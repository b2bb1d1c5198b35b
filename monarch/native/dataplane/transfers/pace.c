/* pace.c - measures the throughput of the origin and the waits of programs, which limit fill.
 *
 * Python reads the counts and decides how many background Transfers run at once: the
 * threads only count, under the lock of the Transfers.
 */
#include "dataplane/transfers/transfers.h"

#include <string.h>

#include "dataplane/transfers/idle_packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"

#define THROTTLE_BURST_NS (SECOND_NS / 10) /* credit of an idle throttle, at most */

enum { HINTS_BESIDE = 1 }; /* copies for hints that may always run */

/* demand_waits - programs wait for copies that do not hang, or have just been served. */
static bool demand_waits(const struct transfers *ts, uint64_t now)
{
    if (ts->demands_running > ts->health.stuck_demand)
        return true;
    for (uint32_t i = 0; i < ts->job->root_count; i++)
        if (!ts->roots[i].stalled && ts->roots[i].orders[CLASS_DEMAND].count)
            return true;
    return now < ts->demand_ns + DEMAND_HOLD_NS;
}

/* pace_background - returns how many background Transfers may run now: hints have a share even
 * where fill has none. */
uint32_t pace_background(const struct transfers *ts, uint64_t now)
{
    uint32_t limit = ts->background_limit, beside = ts->background_beside;
    if (hints_wait(ts)) {
        limit = limit ? limit : HINTS_BESIDE;
        beside = beside ? beside : HINTS_BESIDE;
    }
    return beside < limit && demand_waits(ts, now) ? beside : limit;
}

/* pace_is_full - the limit of background Transfers is reached, parked ones included;
 * those of stalled roots do not count. */
bool pace_is_full(const struct transfers *ts, uint32_t limit)
{
    uint32_t begun = 0;
    for (uint32_t i = 0; i < ts->job->root_count; i++)
        begun += ts->roots[i].stalled ? 0 : ts->roots[i].background_begun;
    return begun >= limit;
}

/* pace_is_busy - the limit of running background Transfers is reached. */
bool pace_is_busy(const struct transfers *ts, uint32_t limit)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < ts->job->root_count; i++)
        running += ts->roots[i].stalled ? 0 : ts->roots[i].background_running;
    return running >= limit;
}

/* is_oldest - no running background Transfer began earlier. */
static bool is_oldest(const struct transfers *ts, const struct transfer *t)
{
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct transfer *other = &ts->transfers[i];
        if (other->turn.running && other->turn.age < t->turn.age &&
            order_class(other->order.kind) == CLASS_BACKGROUND)
            return false;
    }
    return true;
}

/* pace_is_held_up - hinted Files, or Files that other nodes request, wait for a background Transfer
 * to end, and this is the oldest one. */
bool pace_is_held_up(struct transfers *ts, const struct transfer *t)
{
    pthread_mutex_lock(&ts->lock);
    bool waits = hints_wait(ts);
    for (uint32_t i = 0; i < ts->job->root_count; i++)
        waits = waits || ts->roots[i].orders[CLASS_BACKGROUND].count;
    bool held = waits && pace_is_busy(ts, ts->background_limit) && is_oldest(ts, t);
    pthread_mutex_unlock(&ts->lock);
    return held;
}

/* pace_may_hurry - one more Extent may be packed as fast as possible: more of them than processors,
 * or than half of the threads of a root, would delay programs. Under the lock. */
bool pace_may_hurry(const struct transfers *ts)
{
    uint32_t hurried = 0, most = idle_packing_threads(ts->idle_packing);
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct turn *turn = &ts->transfers[i].turn;
        hurried += turn->hurried && !turn->lost && !ts->roots[turn->queue].stalled;
    }
    most = most < ts->root_threads / 2 ? most : ts->root_threads / 2;
    return hurried < (most ? most : 1);
}

/* pace_read - counts what a Transfer has read since the last call: a few large Files would
 * otherwise yield no figures for a long time. */
void pace_read(struct transfers *ts, struct transfer *t)
{
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    uint64_t bytes = t->spent.bytes - t->spent.counted_bytes,
             ns = t->spent.ns - t->spent.counted_ns;
    t->spent.counted_bytes = t->spent.bytes;
    t->spent.counted_ns = t->spent.ns;
    if (transfer_is_local(t) ||
        (t->original.size && !bytes)) /* the bytes are from peers */
        return;
    ts->pace[PACE_READS]++;
    ts->pace[PACE_BYTES] += bytes;
    ts->pace[PACE_NS] += ns;
    ts->pace[PACE_FILL_NS] += background ? ns : 0;
    ts->pace[PACE_STALE] += (background ? t->turn.chunk_limits : t->turn.limits) !=
                            ts->limits;
}

static void note_slow(struct transfers *ts, const struct transfer *t)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < SLOWEST_MAX; i++)
        least = ts->slowest[i].ns < ts->slowest[least].ns ? i : least;
    if (t->spent.ns > ts->slowest[least].ns)
        ts->slowest[least] = (struct slow_copy){t->order.file, t->spent.bytes,
                                                t->spent.ns};
}

/* pace_file - counts a copy that has ended. */
void pace_file(struct transfers *ts, struct transfer *t)
{
    bool nothing = t->partial && !t->spent.bytes; /* its Blocks are from peers */
    if (t->completion.status || transfer_is_local(t) || transfer_shares(t) || nothing)
        return;
    pace_read(ts, t);
    ts->pace[PACE_FILES]++;
    note_slow(ts, t);
    const struct demand_time took = {t->spent.bytes, t->spent.ns};
    if (order_class(t->order.kind) == CLASS_DEMAND && t->turn.limits == ts->limits &&
        t->spent.bytes < CHUNK_BYTES)
        ring_push(&ts->demands, &took);
}

/* pace_chunk - counts one chunk of a larger File while its copy is still in flight. */
void pace_chunk(struct transfers *ts, struct transfer *t, uint64_t ns)
{
    const struct demand_time took = {CHUNK_BYTES, ns};
    pthread_mutex_lock(&ts->lock);
    if (t->turn.chunk_limits == ts->limits)
        ring_push(&ts->demands, &took);
    t->turn.chunk_limits = ts->limits;
    pthread_mutex_unlock(&ts->lock);
}

/* throttle_charge - charges bytes that are about to be read at time `now`. */
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

/* chunk_bytes - returns how many bytes of the origin the next chunk of a Transfer reads. */
static uint64_t chunk_bytes(const struct transfers *ts, const struct transfer *t)
{
    const struct entry *file = catalog_entry(ts->job->catalog, t->order.file, NULL);
    if (transfer_is_local(t) || transfer_shares(t) || !file)
        return 0;
    uint64_t left = t->route ? t->original.size - t->read.offset : file->size;
    return left < CHUNK_BYTES ? left : CHUNK_BYTES;
}

/* pace_charge - charges the next chunk of a background Transfer. */
void pace_charge(struct transfers *ts, const struct transfer *t, uint64_t now)
{
    throttle_charge(&ts->throttle, chunk_bytes(ts, t), now);
}

/* pace_report - reports the bytes and times of the origin so far. */
void pace_report(struct transfers *ts, uint64_t out[PACE_COUNT])
{
    pthread_mutex_lock(&ts->lock);
    memcpy(out, ts->pace, sizeof(ts->pace));
    pthread_mutex_unlock(&ts->lock);
}

/* pace_take_demands - collects the durations of copies that programs waited for and that began
 * under the current limits: up to `max` pairs of bytes and nanoseconds. */
uint32_t pace_take_demands(struct transfers *ts, uint64_t *pairs, uint32_t max)
{
    struct demand_time took;
    uint32_t n = 0;
    pthread_mutex_lock(&ts->lock);
    for (; n < max && ring_pop(&ts->demands, &took); n++) {
        pairs[2 * n] = took.bytes;
        pairs[2 * n + 1] = took.ns;
    }
    pthread_mutex_unlock(&ts->lock);
    return n;
}

/* pace_report_slowest - reports the slowest copies as at most SLOWEST_MAX rows of File, bytes
 * and nanoseconds; returns their number. */
uint32_t pace_report_slowest(struct transfers *ts, uint64_t *rows)
{
    uint32_t n = 0;
    pthread_mutex_lock(&ts->lock);
    for (uint32_t i = 0; i < SLOWEST_MAX; i++)
        if (ts->slowest[i].ns)
            memcpy(rows + 3 * n++, &ts->slowest[i], sizeof(ts->slowest[i]));
    pthread_mutex_unlock(&ts->lock);
    return n;
}
