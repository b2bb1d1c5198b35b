/* pace.c - what the origin gives: what fill follows, and what programs wait for.
 *
 * Python reads the counts and decides how many background Transfers run at once: the
 * threads only count, under the lock of the engine.
 */
#include "dataplane/api/engine.h"

#include <string.h>

#include "dataplane/demand/hints.h"
#include "dataplane/transfers/transfer.h"

enum { HINTS_BESIDE = 1 }; /* copies for hints, whatever programs wait for */

/* demand_waits - programs wait for copies that do not hang, or have just been served. */
static bool demand_waits(const struct engine *e, uint64_t now)
{
    if (e->demands_running > e->health.stuck_demand)
        return true;
    for (uint32_t i = 0; i < e->root_count; i++)
        if (!e->roots[i].stalled && e->roots[i].orders[CLASS_DEMAND].count)
            return true;
    return now < e->demand_ns + DEMAND_HOLD_NS;
}

/* pace_background - how many background Transfers may run now: what programs will open
 * has a share even where fill has none. */
uint32_t pace_background(const struct engine *e, uint64_t now)
{
    uint32_t limit = e->background_limit, beside = e->background_beside;
    if (hints_wanted(e)) {
        limit = limit ? limit : HINTS_BESIDE;
        beside = beside ? beside : HINTS_BESIDE;
    }
    return beside < limit && demand_waits(e, now) ? beside : limit;
}

/* pace_read - counts what a Transfer has read since this was called last: few large
 * Files would else tell nothing for a long time. */
void pace_read(struct engine *e, struct transfer *t)
{
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    uint64_t bytes = t->bytes - t->counted_bytes, ns = t->ns - t->counted_ns;
    t->counted_bytes = t->bytes;
    t->counted_ns = t->ns;
    if (transfer_is_local(t) || (t->size && !bytes)) /* the bytes came from peers */
        return;
    e->pace[PACE_READS]++;
    e->pace[PACE_BYTES] += bytes;
    e->pace[PACE_NS] += ns;
    e->pace[PACE_FILL_NS] += background ? ns : 0;
    e->pace[PACE_STALE] += (background ? t->chunk_limits : t->limits) != e->limits;
}

static void note_slow(struct engine *e, const struct transfer *t)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < SLOWEST_MAX; i++)
        least = e->slowest[i].ns < e->slowest[least].ns ? i : least;
    if (t->ns > e->slowest[least].ns)
        e->slowest[least] = (struct slow_copy){t->order.file, t->bytes, t->ns};
}

/* pace_file - counts a copy that has ended. */
void pace_file(struct engine *e, struct transfer *t)
{
    bool nothing = t->partial && !t->bytes; /* its Blocks came from peers */
    if (t->completion.status || transfer_is_local(t) || nothing)
        return;
    pace_read(e, t);
    e->pace[PACE_FILES]++;
    note_slow(e, t);
    const struct demand_time took = {t->bytes, t->ns};
    if (order_class(t->order.kind) == CLASS_DEMAND && t->limits == e->limits &&
        t->bytes < CHUNK_BYTES)
        ring_push(&e->demands, &took);
}

/* pace_chunk - the same of a chunk of a larger File, long before that has come. */
void pace_chunk(struct engine *e, struct transfer *t, uint64_t ns)
{
    const struct demand_time took = {CHUNK_BYTES, ns};
    pthread_mutex_lock(&e->lock);
    if (t->chunk_limits == e->limits)
        ring_push(&e->demands, &took);
    t->chunk_limits = e->limits;
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_pace - what the origin has given until now. */
void monarch_engine_pace(struct engine *e, uint64_t out[PACE_COUNT])
{
    pthread_mutex_lock(&e->lock);
    memcpy(out, e->pace, sizeof(e->pace));
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_demands - collects how long copies took that programs waited for and
 * that began under the limits of now: up to `max` pairs of bytes and nanoseconds. */
uint32_t monarch_engine_demands(struct engine *e, uint64_t *pairs, uint32_t max)
{
    struct demand_time took;
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (; n < max && ring_pop(&e->demands, &took); n++) {
        pairs[2 * n] = took.bytes;
        pairs[2 * n + 1] = took.ns;
    }
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* monarch_engine_slowest - the copies that took longest: SLOWEST_MAX rows of File, bytes
 * and nanoseconds; returns how many there are. */
uint32_t monarch_engine_slowest(struct engine *e, uint64_t *rows)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < SLOWEST_MAX; i++)
        if (e->slowest[i].ns)
            memcpy(rows + 3 * n++, &e->slowest[i], sizeof(e->slowest[i]));
    pthread_mutex_unlock(&e->lock);
    return n;
}
