/* table_ends.c - ends Transfers: publishes Replicas, releases reservations and counts results. */
#include "dataplane/extents/table.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/replica_state.h"
#include "shared/recency.h"

/* table_count_busy - counts a Transfer that begins; under the lock. */
void table_count_busy(struct table *t)
{
    if (!t->tally.in_flight++)
        t->busy_since_ns = clock_ns();
}

/* table_count_idle - counts a Transfer that ends; under the lock. */
void table_count_idle(struct table *t)
{
    if (--t->tally.in_flight == 0)
        t->tally.busy_ns += clock_ns() - t->busy_since_ns;
}

/* table_busy - counts a Transfer of Blocks that begins or ends: between two of them, a File staged
 * in part is not in flight. */
void table_busy(struct table *t, bool busy)
{
    pthread_mutex_lock(&t->lock);
    if (busy)
        table_count_busy(t);
    else
        table_count_idle(t);
    pthread_mutex_unlock(&t->lock);
}

/* table_origin_busy_ns - how long Transfers have read the origin until now. The caller holds the
 * lock. */
uint64_t table_origin_busy_ns(const struct table *t)
{
    return t->tally.origin_busy_ns +
           (t->at_origin ? clock_ns() - t->at_origin_since_ns : 0);
}

/* table_at_origin - counts a Transfer that begins or ends and may read the origin. */
void table_at_origin(struct table *t, bool begins)
{
    pthread_mutex_lock(&t->lock);
    if (begins && !t->at_origin++)
        t->at_origin_since_ns = clock_ns();
    if (!begins && !--t->at_origin)
        t->tally.origin_busy_ns += clock_ns() - t->at_origin_since_ns;
    pthread_mutex_unlock(&t->lock);
}

/* table_in_blocks - the order stages a large File by its Blocks. */
bool table_in_blocks(const struct table *t, const struct monarch_order *order)
{
    return !(order->kind & MONARCH_ADOPT) && !table_is_pool(t, order->tier) &&
           table_in_part(t, order->file);
}

/* table_release - releases a reservation. */
void table_release(struct table *t, uint32_t tier, uint64_t need)
{
    t->accounts[tier].reserved -= need; /* also of a Tier that is out of service */
}

/* table_give_up - releases the reservation of an order; the Extents of a File in pieces have their
 * own room. */
void table_give_up(struct table *t, const struct monarch_order *order)
{
    if (table_in_pieces(t, order->file))
        table_set_pieces(t, order->file, false);
    else
        table_release(t, order->tier, table_need(t, order->tier, order->file));
    table_clear_due(t, order->file);
}

/* table_count_published - counts a File that is READY, by the source in its state word `fixed`. */
void table_count_published(struct table *t, const struct monarch_order *order,
                           uint32_t fixed)
{
    uint64_t bytes = t->options.sizes[order->file];
    struct monarch_tally *all = &t->tally;
    if (order->kind & MONARCH_LOCAL)
        return;
    if (order->kind & MONARCH_ADOPT) {
        all->adopted_files++;
        all->adopted_bytes += bytes;
    } else if (STATE_SOURCE(fixed) == SOURCE_SIBLING) {
        all->shared_files++;
        all->shared_bytes += bytes;
    } else if (table_in_blocks(t, order)) {
        all->staged_files++; /* its bytes were counted as they arrived */
    } else if (order->peer != NO_PEER) {
        all->peer_files++;
        all->peer_bytes += bytes;
        t->fetched[order->peer % PEERS_MAX].files++;
        t->fetched[order->peer % PEERS_MAX].bytes += bytes;
    } else {
        all->staged_files++;
        all->staged_bytes += bytes;
    }
    if (table_is_pool(t, order->tier)) {
        all->transit_files++;
        all->transit_bytes += bytes;
    }
}

static void count_ended(struct table *t, const struct monarch_order *order)
{
    if (!table_in_blocks(t, order))
        table_count_idle(t);
}

/* table_publish - makes a verified copy READY, with the Tier and source of `fixed`.
 * -ENXIO: its Tier is out of service; -ECANCELED: its generation has passed. */
int table_publish(struct table *t, const struct monarch_order *order, uint32_t fixed)
{
    struct monarch_account *a = &t->accounts[order->tier];
    uint64_t need = table_need(t, order->tier, order->file);
    int rc = 0;
    if (t->flags) /* before it is READY, and can be evicted */
        recency_note(t->flags, order->file);
    pthread_mutex_lock(&t->lock);
    if (!a->in_service)
        rc = -ENXIO;
    else if (!replica_state_end(t->words, order->file, order->word, fixed))
        rc = -ECANCELED;
    if (!rc) {
        a->reserved -= need;
        a->used += need;
        table_count_published(t, order, fixed);
        count_ended(t, order);
    }
    pthread_mutex_unlock(&t->lock);
    if (!rc)
        replica_state_wake(t->words, order->file);
    return rc;
}

/* table_count - adds to the counters. */
void table_count(struct table *t, const struct monarch_tally *more)
{
    uint64_t *sums = &t->tally.in_flight;
    const uint64_t *each = &more->in_flight;
    static_assert(offsetof(struct monarch_tally, in_flight) == 0 &&
                      sizeof(*more) % sizeof(*each) == 0,
                  "a tally has nothing but sums");
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < sizeof(*more) / sizeof(*each); i++)
        sums[i] += each[i];
    pthread_mutex_unlock(&t->lock);
}

/* table_fail_packing - ends a failed order to pack a File, which stays in the Pool as long as it
 * can. */
void table_fail_packing(struct table *t, const struct monarch_order *order)
{
    t->accounts[order->tier].reserved -= table_need(t, order->tier, order->file);
    table_clear_due(t, order->file);
    table_count_idle(t);
}

/* monarch_table_fail - makes the File of a Transfer absent for a reason and frees its room. 0:
 * its generation has passed, and nothing is changed. `promise`: room is promised again to a
 * kept File. */
int monarch_table_fail(struct table *t, const struct monarch_order *order,
                       uint32_t reason, int promise)
{
    uint32_t file = order->file;
    pthread_mutex_lock(&t->lock);
    if ((order->kind & MONARCH_LOCAL) && !table_is_pool(t, order->tier)) {
        table_fail_packing(t, order);
        pthread_mutex_unlock(&t->lock);
        return 1;
    }
    bool ended = replica_state_end(t->words, file, order->word,
                                   STATE_WORD(REPLICA_ABSENT, 0, reason));
    if (ended) {
        table_give_up(t, order);
        count_ended(t, order);
    }
    if (ended && !table_is_packed(t, file))
        table_set_promised(t, file, promise && table_kept_need(t, file) > 0);
    pthread_mutex_unlock(&t->lock);
    if (ended)
        replica_state_wake(t->words, file);
    return ended;
}
