/* block_claims.c - who copies which Blocks of a partial Replica, and which are there.
 *
 * A Block is copied by one Transfer at a time, which claims it here. Programs read it once its
 * bit is set, which is after the origin's file was found to be the one in the Catalog.
 */
#include <limits.h>
#include <string.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table.h"

enum { AWAIT_MS = 100 };

static uint32_t present_in(const struct partial *p, uint32_t extent)
{
    return atomic_load_explicit(&p->words[extent], memory_order_relaxed);
}

static bool is_free(const struct partial *p, uint32_t block)
{
    uint32_t taken = present_in(p, block / EXTENT_BLOCKS) |
                     p->claimed[block / EXTENT_BLOCKS];
    return !(taken >> block % EXTENT_BLOCKS & 1);
}

/* free_run - the first run of free Blocks within one Extent; count 0: none. */
static struct block_run free_run(const struct partial *p, uint32_t from, uint32_t end,
                                 uint32_t max)
{
    struct block_run run = {.first = from};
    while (run.first < end && !is_free(p, run.first))
        run.first++;
    uint32_t extent = run.first / EXTENT_BLOCKS;
    for (uint32_t at = run.first;
         at < end && run.count < max && is_free(p, at) && at / EXTENT_BLOCKS == extent;
         at++)
        run.count++;
    return run;
}

/* claim - claims a run, if its Extent has room; the Pool has none for fill. */
static bool claim(struct partials *parts, struct partial *p, struct block_run run,
                  bool fill)
{
    uint32_t extent = run.first / EXTENT_BLOCKS;
    if (p->pieces && !partial_has_place(parts, p, extent, fill))
        return false;
    p->claimed[extent] |= blocks_mask(run.first, run.count);
    p->claims += run.count;
    return true;
}

/* refuse - there is no room for Blocks: who waits for them asks again when others have come,
 * or the origin, if there will be none. */
static void refuse(struct partials *parts, struct partial *p, uint32_t block)
{
    uint32_t extent = block / EXTENT_BLOCKS;
    const struct pooled_extent one = {p->large, extent};
    bool never = atomic_load(&p->places[extent]) == PLACE_ORIGIN;
    if (never || !ring_push(&parts->refused, &one))
        partial_wake(parts, p, block);
}

/* set_unasked - no program waits for claimed Blocks so far. */
static void set_unasked(struct partial *p, struct block_run run)
{
    p->unasked[run.first / EXTENT_BLOCKS] |= blocks_mask(run.first, run.count);
}

/* take_unasked - a program waits for all Blocks of a range now; true: fill had claimed some
 * of them. */
static bool take_unasked(struct partial *p, uint32_t first, uint32_t end)
{
    bool found = false;
    for (uint32_t at = first; at < end; at += EXTENT_BLOCKS - at % EXTENT_BLOCKS) {
        uint32_t *unasked = &p->unasked[at / EXTENT_BLOCKS];
        uint32_t mask = *unasked & blocks_mask(at, end - at);
        found = found || mask;
        *unasked &= ~mask;
    }
    return found;
}

/* partial_take_unasked - a program waits for the whole File now: the next Extent from
 * `extent` on of which fill had claimed Blocks; false: there is none. */
bool partial_take_unasked(struct partials *parts, struct partial *p, uint32_t *extent)
{
    bool found = false;
    pthread_mutex_lock(&parts->lock);
    for (; !found && *extent < p->extents; *extent += !found) {
        uint32_t first = *extent * EXTENT_BLOCKS;
        found = take_unasked(p, first, first + EXTENT_BLOCKS);
    }
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* claim_range - all Blocks up to `end` that nobody copies. */
static void claim_range(struct partials *parts, struct partial *p, uint32_t at,
                        uint32_t end, struct block_claims *out)
{
    while (out->count < RUNS_MAX && at < end) {
        struct block_run run = free_run(p, at, end, EXTENT_BLOCKS);
        if (!run.count)
            break;
        at = run.first + run.count;
        if (claim(parts, p, run, false))
            out->runs[out->count++] = run;
        else
            refuse(parts, p, run.first);
    }
}

/* widen - to whole Extents, if these are to be packed and the Pool is short of room: they are
 * complete sooner, and what had come of them need not leave the Pool before. */
static void widen(struct partials *parts, const struct partial *p, uint32_t *first,
                  uint32_t *end)
{
    uint32_t from = *first - *first % EXTENT_BLOCKS;
    if (!p->pieces || *first == *end || !table_pool_is_short(parts->table) ||
        !extent_goes_packed(parts, p, from / EXTENT_BLOCKS))
        return;
    uint32_t to = (*end + EXTENT_BLOCKS - 1) / EXTENT_BLOCKS * EXTENT_BLOCKS;
    *first = from;
    *end = to < p->blocks ? to : p->blocks;
}

/* partial_claim_runs - claims all Blocks of a range that nobody copies yet, of a File that
 * is staged in part. `unasked`: no program waits for them. */
void partial_claim_runs(struct partials *parts, struct block_range range, bool unasked,
                        struct block_claims *out)
{
    out->count = 0;
    out->of_fill = false;
    pthread_mutex_lock(&parts->lock);
    struct partial *p = parts->all[range.large];
    if (p && !p->ended) {
        uint32_t first = range.first, end = first + range.count;
        end = end < p->blocks ? end : p->blocks;
        out->order = p->order;
        out->of_fill = !unasked && take_unasked(p, first, end);
        widen(parts, p, &first, &end);
        claim_range(parts, p, first, end, out);
        for (uint32_t i = 0; unasked && i < out->count; i++)
            set_unasked(p, out->runs[i]);
    }
    pthread_mutex_unlock(&parts->lock);
}

/* partial_claim_next - claims the next Blocks that nobody copies, for fill; count 0: none is
 * left. */
struct block_run partial_claim_next(struct partials *parts, struct partial *p,
                                    uint32_t from, uint32_t max, bool unasked)
{
    struct block_run run = {0};
    pthread_mutex_lock(&parts->lock);
    if (!p->ended)
        run = free_run(p, from, p->blocks, max);
    if (run.count && !claim(parts, p, run, true))
        run.count = 0;
    if (run.count && unasked)
        set_unasked(p, run);
    pthread_mutex_unlock(&parts->lock);
    return run;
}

/* partial_asked_since - a program has begun to wait for Blocks that fill has claimed. */
bool partial_asked_since(struct partials *parts, uint32_t large, struct block_run run)
{
    uint32_t extent = run.first / EXTENT_BLOCKS;
    pthread_mutex_lock(&parts->lock);
    const struct partial *p = parts->all[large];
    bool asked = p && p->claimed[extent] & ~p->unasked[extent] &
                          blocks_mask(run.first, run.count);
    pthread_mutex_unlock(&parts->lock);
    return asked;
}

static void unclaim(struct partial *p, struct block_run run)
{
    uint32_t *claimed = &p->claimed[run.first / EXTENT_BLOCKS];
    uint32_t mask = blocks_mask(run.first, run.count);
    p->claims -= (uint32_t)__builtin_popcount(*claimed & mask);
    *claimed &= ~mask;
    p->unasked[run.first / EXTENT_BLOCKS] &= ~mask;
}

/* is_wanted - fill is to bring an Extent: of a File in pieces those that this node keeps,
 * and has room for. */
static bool is_wanted(struct partials *parts, const struct partial *p, uint32_t extent)
{
    return !p->pieces || (table_keeps_extent(parts->table, p->order.file, extent) &&
                          !extent_is_packed(parts, p->order.file, extent) &&
                          atomic_load_explicit(&p->places[extent],
                                               memory_order_relaxed) != PLACE_ORIGIN);
}

/* partial_find_next - the next Blocks of one Extent that nobody copies and fill is to bring;
 * count 0: none. */
struct block_run partial_find_next(struct partials *parts, struct partial *p,
                                   uint32_t from)
{
    struct block_run run = {0};
    pthread_mutex_lock(&parts->lock);
    while (!p->ended && from < p->blocks) {
        run = free_run(p, from, p->blocks, EXTENT_BLOCKS);
        if (!run.count || is_wanted(parts, p, run.first / EXTENT_BLOCKS))
            break;
        run.count = 0;
        from = (run.first / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS;
    }
    pthread_mutex_unlock(&parts->lock);
    return run;
}

/* partial_still_claimed - which Blocks of a claimed run have not come: up to EXTENT_BLOCKS
 * runs. */
uint32_t partial_still_claimed(struct partials *parts, struct partial *p,
                               struct block_run run, struct block_run *out)
{
    uint32_t n = 0, end = run.first + run.count;
    pthread_mutex_lock(&parts->lock);
    uint32_t claimed = p->claimed[run.first / EXTENT_BLOCKS];
    for (uint32_t at = run.first; at < end; at++) {
        if (!(claimed >> at % EXTENT_BLOCKS & 1))
            continue;
        if (n && out[n - 1].first + out[n - 1].count == at)
            out[n - 1].count++;
        else
            out[n++] = (struct block_run){at, 1};
    }
    pthread_mutex_unlock(&parts->lock);
    return n;
}

/* partial_unclaim - Blocks of one Extent that were not copied; if that has failed, programs
 * that wait for them read the origin. */
void partial_unclaim(struct partials *parts, struct partial *p, struct block_run run,
                     bool failed)
{
    pthread_mutex_lock(&parts->lock);
    unclaim(p, run);
    if (failed)
        atomic_fetch_add_explicit((_Atomic uint32_t *)&p->part->failures, 1,
                                  memory_order_release);
    partial_wake(parts, p, run.first);
    pthread_mutex_unlock(&parts->lock);
}

/* partial_release_run - the same of a Transfer that could not be queued. */
void partial_release_run(struct partials *parts, uint32_t large, struct block_run run)
{
    pthread_mutex_lock(&parts->lock);
    struct partial *p = parts->all[large];
    if (p)
        unclaim(p, run);
    pthread_mutex_unlock(&parts->lock);
}

static uint32_t whole_extent(const struct partial *p, uint32_t extent)
{
    uint32_t first = extent * EXTENT_BLOCKS;
    return blocks_mask(first, p->blocks - first);
}

/* partial_set - Blocks of one Extent are there, and right; true: the Extent is complete, of
 * a File that will be READY. */
bool partial_set(struct partials *parts, struct partial *p, struct block_run run,
                 const uint64_t *digests)
{
    uint32_t extent = run.first / EXTENT_BLOCKS;
    uint32_t mask = blocks_mask(run.first, run.count);
    pthread_mutex_lock(&parts->lock);
    uint64_t *kept = p->digests + run.first;
    if (digests != kept) /* else they are known, and others compare with them */
        memcpy(kept, digests, run.count * sizeof(*digests));
    unclaim(p, run);
    p->present += run.count;
    uint32_t now = mask | atomic_fetch_or_explicit(&p->words[extent], mask,
                                                   memory_order_release);
    bool whole = now == whole_extent(p, extent);
    if (whole && p->pieces)
        extent_came(parts, p, extent);
    partial_wake(parts, p, run.first);
    pthread_mutex_unlock(&parts->lock);
    return !p->pieces && whole;
}

/* partial_extent_finished - counts an Extent that has its checksum; true: it was the last
 * one, and the caller publishes the Replica. */
bool partial_extent_finished(struct partials *parts, struct partial *p, uint32_t extent)
{
    pthread_mutex_lock(&parts->lock);
    bool first = !p->has_checksum[extent];
    p->has_checksum[extent] = 1;
    p->finished += first;
    bool last = first && p->finished == p->extents && !p->ended;
    pthread_mutex_unlock(&parts->lock);
    return last;
}

/* partial_hand - gives Blocks that are still claimed, or have come, to the thread that
 * listens: it asks their next source, or has their Extent completed. False: there are too
 * many. */
bool partial_hand(struct partials *parts, const struct monarch_order *order)
{
    pthread_mutex_lock(&parts->lock);
    bool taken = ring_push(&parts->handed, order);
    pthread_mutex_unlock(&parts->lock);
    if (taken)
        job_ring(parts->job);
    return taken;
}

/* partial_hand_complete - has a thread that copies complete an Extent whose last Block has
 * come by an order: also of fill as demand, for a program that waits for the File would let no
 * background begin. */
void partial_hand_complete(struct partials *parts, const struct monarch_order *from,
                           uint32_t extent)
{
    struct monarch_order order = *from;
    order.peer = NO_PEER;
    order.kind = (uint8_t)((from->kind & MONARCH_PARTLY) | MONARCH_ASKED);
    order.tried = BLOCKS_HAVE_COME;
    order.first_block = extent * EXTENT_BLOCKS;
    order.block_count = 1;
    if (!partial_hand(parts, &order))
        partial_finish_later(parts, order.file);
}

/* partial_take_handed - the next of these. */
bool partial_take_handed(struct partials *parts, struct monarch_order *out)
{
    pthread_mutex_lock(&parts->lock);
    bool found = ring_pop(&parts->handed, out);
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* partial_finish_later - a complete Extent of a File could not be queued for its checksum. */
void partial_finish_later(struct partials *parts, uint32_t file)
{
    int64_t large = presence_find(parts->job->flags, file);
    pthread_mutex_lock(&parts->lock);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p)
        p->finish_later = true;
    pthread_mutex_unlock(&parts->lock);
}

/* partial_unfinished - a complete Extent that has no checksum; false: there is none. Under
 * the lock. */
bool partial_unfinished(struct partial *p, uint32_t *extent)
{
    for (uint32_t i = 0; i < p->extents; i++)
        if (!p->has_checksum[i] && present_in(p, i) == whole_extent(p, i)) {
            *extent = i;
            return true;
        }
    p->finish_later = false;
    return false;
}

/* partial_await - waits a little for Blocks that others copy; true: some that nobody copies
 * are missing now. */
bool partial_await(struct partials *parts, struct partial *p)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += AWAIT_MS * (long)MS_NS;
    until.tv_sec += until.tv_nsec / (long)SECOND_NS;
    until.tv_nsec %= (long)SECOND_NS;
    pthread_mutex_lock(&parts->lock);
    if (!p->ended)
        pthread_cond_timedwait(&parts->changed, &parts->lock, &until);
    bool left = false;
    for (uint32_t i = 0; !left && i < p->blocks; i++)
        left = is_free(p, i);
    pthread_mutex_unlock(&parts->lock);
    return left;
}
