/* table_packing.c - selects the Extents in the Pool to be packed, and their Tiers. */
#include "dataplane/extents/table.h"

#include "dataplane/base/clock.h"
#include "dataplane/extents/order.h"

enum {
    NO_TIER = -1,
    CROWDED_PARTS = 3, /* packing hurries if 1/CROWDED_PARTS of the Pool waits */
    DUE_PARTS = 2,     /* Files that wait for it take at most 1/DUE_PARTS */
    SHORT_PARTS = 4,   /* the Pool is short if less than 1/SHORT_PARTS is free */
};

static const uint64_t CROWDED_NS = 2 * SECOND_NS;

/* table_will_be_restaged - a File evicted from the Pool can be staged again: it is packed, or
 * others can be evicted for it. */
bool table_will_be_restaged(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool restaged = table_is_packed(t, file) || table_can_evict(t, file);
    pthread_mutex_unlock(&t->lock);
    return restaged;
}

/* table_is_due - a File in the Pool is to be packed: it stays there until then. */
bool table_is_due(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool due = t->packed[table_row(t, file, 0)] & PACKED_DUE;
    pthread_mutex_unlock(&t->lock);
    return due;
}

/* table_pool_is_crowded - Files that are to be packed, and cannot leave the Pool before, take much
 * of it. */
bool table_pool_is_crowded(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    bool crowded = CROWDED_PARTS * t->due_bytes >
                   t->accounts[t->options.tiers].capacity;
    pthread_mutex_unlock(&t->lock);
    return crowded;
}

/* packing_pays - the processor packs a byte in less time than the origin delivers it, as far as
 * known; or Tiers evict for programs, so that no fill will read later what is not packed now.
 * Otherwise reading a File again is cheaper than taking processors from programs. */
static bool packing_pays(const struct table *t)
{
    const struct monarch_tally *all = &t->tally;
    uint64_t busy_ns = table_origin_busy_ns(t);
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (t->evicts[i] && t->ratios[i])
            return true;
    if (!all->packed_bytes || !all->origin_read_bytes)
        return true;
    return (double)all->pack_ns / (double)all->packed_bytes <=
           (double)busy_ns / (double)all->origin_read_bytes;
}

/* table_packing_pays - the same for a caller without the lock. */
bool table_packing_pays(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    bool pays = packing_pays(t);
    pthread_mutex_unlock(&t->lock);
    return pays;
}

/* table_due_fits - Files that are to be packed may take `need` more bytes of the Pool. If packing
 * does not pay, it waits for idle processors and may be far behind: then a part of the Pool is kept
 * for decoded Files. The caller holds the lock. */
bool table_due_fits(const struct table *t, uint64_t need)
{
    return packing_pays(t) ||
           DUE_PARTS * (t->due_bytes + need) <= t->accounts[t->options.tiers].capacity;
}

/* is_to_be_packed - a packed Tier is to hold a small File, and does not hold it yet. The caller
 * holds the lock. */
static bool is_to_be_packed(const struct table *t, uint32_t file)
{
    uint8_t to = t->rows[table_row(t, file, 0)].destination;
    bool packs = false;
    for (uint32_t i = 0; i < t->options.tiers; i++)
        packs = packs || table_packs(t, i, file);
    return packs && (to == DESTINATION_TIER || to == DESTINATION_SPARE) &&
           !table_is_packed(t, file);
}

/* table_packing_is_behind - the Pool has no room for a File because others wait there to be
 * packed. */
bool table_packing_is_behind(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool behind = is_to_be_packed(t, file) &&
                  !table_due_fits(t, footprint(t->options.sizes[file]));
    pthread_mutex_unlock(&t->lock);
    return behind;
}

/* table_count_again - counts a File that may be requested again: fill, which may have skipped it,
 * tries it once more if it is to be packed. */
void table_count_again(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    t->tally.again += is_to_be_packed(t, file);
    pthread_mutex_unlock(&t->lock);
}

/* table_pool_is_short - Extents that wait to be packed may keep programs from the Pool. */
bool table_pool_is_short(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    const struct monarch_account *pool = &t->accounts[t->options.tiers];
    bool is_short = account_free(pool) < pool->capacity / SHORT_PARTS;
    pthread_mutex_unlock(&t->lock);
    return is_short;
}

/* table_packing_tier - returns the packed Tier whose frames this node can use for a File requested
 * from a peer: its own Tier, the one for which it will be packed, or another one; -1: none. */
int table_packing_tier(struct table *t, const struct monarch_order *order)
{
    uint32_t file = order->file;
    int found = NO_TIER;
    pthread_mutex_lock(&t->lock);
    uint8_t packed = t->packed[table_row(t, file, order_extent(order))];
    if (!table_is_pool(t, order->tier) && table_packs(t, order->tier, file))
        found = order->tier;
    else if (packed & PACKED_DUE)
        found = (packed & ~PACKED_DUE) - 1;
    for (uint32_t i = 0; found < 0 && i < t->options.tiers; i++)
        if (table_packs(t, i, file))
            found = (int)i;
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* table_crowded_tier - returns the packed Tier whose room for a small File is reserved for frames
 * in flight that may turn out smaller; -1: none. Frames begun long ago are expected to need all of
 * it. */
int table_crowded_tier(const struct table *t, uint32_t file)
{
    uint64_t now = clock_ns();
    for (uint32_t i = 0; i < t->options.tiers; i++) {
        const struct monarch_account *a = &t->accounts[i];
        const struct last_pages *pages = &t->last_pages[i];
        uint64_t held = a->used + table_page_ahead(t, i) + table_need(t, i, file);
        if (pages->segments > pages->beside)
            held += (uint64_t)(pages->segments - pages->beside) * PAGE_BYTES;
        if (a->in_service && table_packs(t, i, file) && held <= a->capacity &&
            now - t->frames_ns[i] < CROWDED_NS)
            return (int)i;
    }
    return NO_TIER;
}

/* reserve_frame - returns the packed Tier with room for a File in the Pool, and reserves it; -1:
 * none. A File that need not be kept leaves the room promised to others. */
static int reserve_frame(struct table *t, uint32_t file)
{
    uint8_t to = t->rows[table_row(t, file, 0)].destination;
    bool keeps = to == DESTINATION_TIER || table_can_evict(t, file);
    if (!keeps && (int64_t)table_need(t, 0, file) > table_spare_bytes(t))
        return NO_TIER;
    return table_reserve_packed(t, file);
}

/* may_have_room - others can be evicted for a File without room, or frames in flight hold some of
 * its room. */
static bool may_have_room(const struct table *t, uint32_t file)
{
    if (table_can_evict(t, file))
        return !t->stays_full;
    return t->rows[table_row(t, file, 0)].destination == DESTINATION_TIER &&
           table_crowded_tier(t, file) >= 0;
}

/* table_begin_packing - makes the order to pack a File that is in the Pool; false: it cannot be
 * packed, or stays due until there is room for it. */
bool table_begin_packing(struct table *t, uint32_t file, struct monarch_order *out)
{
    uint32_t seen = atomic_load_explicit(&t->words[file], memory_order_acquire);
    int tier = NO_TIER;
    pthread_mutex_lock(&t->lock);
    bool may = t->packed[table_row(t, file, 0)] & PACKED_DUE &&
               STATE_OF(seen) == REPLICA_READY && table_is_pool(t, STATE_TIER(seen)) &&
               !table_written(t, file) &&
               !atomic_load_explicit(&t->stopping, memory_order_relaxed);
    if (may)
        tier = reserve_frame(t, file);
    if (tier < 0 && !(may && may_have_room(t, file))) {
        table_clear_due(t, file);
    } else if (tier >= 0) {
        *out = (struct monarch_order){.file = file,
                                      .tier = (uint16_t)tier,
                                      .kind = MONARCH_LOCAL | MONARCH_BACKGROUND,
                                      .peer = NO_PEER,
                                      .word = seen};
        table_count_busy(t);
    }
    pthread_mutex_unlock(&t->lock);
    return tier >= 0;
}

/* ---- Extents of large Files ----------------------------------------------------------- */

/* packing - returns the first Tier with room for an Extent, if it packs that; else NO_TIER. */
static int packing(const struct table *t, uint32_t file, uint32_t extent)
{
    uint32_t i = 0;
    if (t->rows[table_row(t, file, extent)].destination != DESTINATION_TIER)
        return NO_TIER;
    while (i < t->options.tiers &&
           table_extent_need(t, i, file, extent) > table_free_in(t, i))
        i++;
    return i < t->options.tiers && table_packs(t, i, file) ? (int)i : NO_TIER;
}

/* table_extent_packing - returns the Tier in which an Extent is to be packed; -1: none. */
int table_extent_packing(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    int tier = packing(t, file, extent);
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* table_reserve_frame - does the same and reserves the room that its frame is expected to use. */
int table_reserve_frame(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    int tier = packing(t, file, extent);
    if (tier >= 0) {
        t->accounts[tier].reserved += table_extent_need(t, (uint32_t)tier, file,
                                                        extent);
        t->frames_ns[tier] = clock_ns();
    }
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* table_give_frame - frees that room. */
void table_give_frame(struct table *t, const struct monarch_order *order)
{
    pthread_mutex_lock(&t->lock);
    t->accounts[order->tier].reserved -= table_frame_need(t, order);
    pthread_mutex_unlock(&t->lock);
}
