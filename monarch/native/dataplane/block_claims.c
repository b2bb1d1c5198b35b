/* block_claims.c - who copies which Blocks of a partial Replica, and which are there.
 *
 * A Block is copied by one Transfer at a time, which claims it here. Programs read it once its
 * bit is set, which is after the origin's file was found to be the one in the Catalog.
 */
#include <limits.h>
#include <string.h>

#include "dataplane/partial.h"
#include "dataplane/syscalls.h"

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

/* claim_run - claims the first run of free Blocks within one Extent; count 0: none. */
static struct block_run claim_run(struct partial *p, uint32_t from, uint32_t end,
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
    if (run.count)
        p->claimed[extent] |= blocks_mask(run.first, run.count);
    return run;
}

/* partial_claim_runs - claims all Blocks of a range that nobody copies yet, of a File that
 * is staged in part: the number of runs, and the order of its Transfers. */
uint32_t partial_claim_runs(struct engine *e, struct block_range range,
                            struct monarch_order *order, struct block_run *runs)
{
    uint32_t n = 0, at = range.first, end = range.first + range.count;
    pthread_mutex_lock(&e->partials->lock);
    struct partial *p = e->partials->all[range.large];
    if (p && !p->ended) {
        *order = p->order;
        end = end < p->blocks ? end : p->blocks;
        for (; n < RUNS_MAX && at < end; n++) {
            runs[n] = claim_run(p, at, end, EXTENT_BLOCKS);
            if (!runs[n].count)
                break;
            at = runs[n].first + runs[n].count;
        }
    }
    pthread_mutex_unlock(&e->partials->lock);
    return n;
}

/* partial_claim_next - claims the next Blocks that nobody copies; count 0: none is left. */
struct block_run partial_claim_next(struct engine *e, struct partial *p, uint32_t from,
                                    uint32_t max)
{
    struct block_run run = {0};
    pthread_mutex_lock(&e->partials->lock);
    if (!p->ended)
        run = claim_run(p, from, p->blocks, max);
    pthread_mutex_unlock(&e->partials->lock);
    return run;
}

static void wake(struct engine *e, struct partial *p, uint32_t block)
{
    futex_wake(&p->words[block / EXTENT_BLOCKS], INT_MAX);
    pthread_cond_broadcast(&e->partials->changed);
}

/* partial_unclaim - Blocks of one Extent that were not copied; if that has failed, programs
 * that wait for them read the origin. */
void partial_unclaim(struct engine *e, struct partial *p, struct block_run run,
                     bool failed)
{
    pthread_mutex_lock(&e->partials->lock);
    p->claimed[run.first / EXTENT_BLOCKS] &= ~blocks_mask(run.first, run.count);
    if (failed)
        atomic_fetch_add_explicit((_Atomic uint32_t *)&p->part->failures, 1,
                                  memory_order_release);
    wake(e, p, run.first);
    pthread_mutex_unlock(&e->partials->lock);
}

/* partial_release_run - the same of a Transfer that could not be queued. */
void partial_release_run(struct engine *e, uint32_t large, struct block_run run)
{
    pthread_mutex_lock(&e->partials->lock);
    struct partial *p = e->partials->all[large];
    if (p)
        p->claimed[run.first / EXTENT_BLOCKS] &= ~blocks_mask(run.first, run.count);
    pthread_mutex_unlock(&e->partials->lock);
}

static uint32_t whole_extent(const struct partial *p, uint32_t extent)
{
    uint32_t first = extent * EXTENT_BLOCKS;
    return blocks_mask(first, p->blocks - first);
}

/* partial_set - Blocks of one Extent are there, and right; true: the Extent is complete. */
bool partial_set(struct engine *e, struct partial *p, struct block_run run,
                 const uint64_t *digests)
{
    uint32_t extent = run.first / EXTENT_BLOCKS;
    uint32_t mask = blocks_mask(run.first, run.count);
    pthread_mutex_lock(&e->partials->lock);
    memcpy(p->digests + run.first, digests, run.count * sizeof(*digests));
    p->claimed[extent] &= ~mask;
    p->present += run.count;
    uint32_t now = mask | atomic_fetch_or_explicit(&p->words[extent], mask,
                                                   memory_order_release);
    wake(e, p, run.first);
    pthread_mutex_unlock(&e->partials->lock);
    return now == whole_extent(p, extent);
}

/* partial_extent_finished - counts an Extent that has its checksum; true: it was the last
 * one, and the caller publishes the Replica. */
bool partial_extent_finished(struct engine *e, struct partial *p)
{
    pthread_mutex_lock(&e->partials->lock);
    bool last = ++p->finished == p->extents && !p->ended;
    pthread_mutex_unlock(&e->partials->lock);
    return last;
}

/* partial_await - waits a little for Blocks that others copy; true: some that nobody copies
 * are missing now. */
bool partial_await(struct engine *e, struct partial *p)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += AWAIT_MS * (long)MS_NS;
    until.tv_sec += until.tv_nsec / (long)SECOND_NS;
    until.tv_nsec %= (long)SECOND_NS;
    pthread_mutex_lock(&e->partials->lock);
    if (!p->ended)
        pthread_cond_timedwait(&e->partials->changed, &e->partials->lock, &until);
    bool left = false;
    for (uint32_t i = 0; !left && i < p->blocks; i++)
        left = is_free(p, i);
    pthread_mutex_unlock(&e->partials->lock);
    return left;
}
