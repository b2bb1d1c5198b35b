/* table_pieces.c - the room of large Files: all of it in one Tier, or Extent by Extent.
 *
 * A File that this node keeps whole reserves its room when it begins, if one Tier has that much. In
 * any other File each Extent takes room when the first of its Blocks is requested: kept Extents in
 * a Tier, the rest in the Pool. Extents that a packed Tier is to hold are in the Pool, too.
 */
#include "dataplane/extents/table.h"

#include "shared/presence.h"

/* table_in_pieces - the Extents of a File that is being staged take room one by one. */
bool table_in_pieces(const struct table *t, uint32_t file)
{
    return t->pieces[file / 8] >> file % 8 & 1;
}

/* table_is_in_pieces - the same for a caller without the lock. */
bool table_is_in_pieces(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool pieces = table_in_pieces(t, file);
    pthread_mutex_unlock(&t->lock);
    return pieces;
}

/* table_set_pieces - sets whether the Extents of a File take room one by one. */
void table_set_pieces(struct table *t, uint32_t file, bool pieces)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (pieces)
        t->pieces[file / 8] |= bit;
    else
        t->pieces[file / 8] &= (uint8_t)~bit;
}

static const struct monarch_table_row *rows_of(const struct table *t, uint32_t file,
                                               uint64_t *count)
{
    uint64_t first = t->options.first[file];
    *count = t->options.first[file + 1] - first;
    return &t->rows[first];
}

/* extents_for - returns the number of Extents of a File with this destination. */
static uint64_t extents_for(const struct table *t, uint32_t file,
                            enum monarch_destination where)
{
    uint64_t count, sum = 0;
    const struct monarch_table_row *rows = rows_of(t, file, &count);
    for (uint64_t i = 0; i < count; i++)
        sum += rows[i].destination == where;
    return sum;
}

/* is_mapped - programs map the File: they need all of it. */
static bool is_mapped(const struct table *t, uint32_t file)
{
    const _Atomic uint8_t *whole = (const _Atomic uint8_t *)t->flags + t->flags->whole;
    return t->flags->whole && atomic_load_explicit(&whole[file], memory_order_relaxed);
}

/* table_reserve_large - begins a large File; returns the Tier that has room for all of it, or any
 * one if its Extents take room one by one. -1: it has no room at all. One that a program waits for
 * whole is not packed, if it has room. */
int table_reserve_large(struct table *t, const struct monarch_order *order)
{
    uint32_t file = order->file;
    bool whole = is_mapped(t, file) || order->kind & MONARCH_AWAITED;
    uint64_t need = footprint(t->options.sizes[file]);
    uint64_t all = t->options.first[file + 1] - t->options.first[file];
    uint64_t kept = extents_for(t, file, DESTINATION_TIER), nowhere;
    int tier = -1;
    if (kept && !whole && table_extents_packed(t, file)) {
        table_set_pieces(t, file, true);
        return 0;
    }
    nowhere = extents_for(t, file, DESTINATION_NOWHERE);
    if (kept == all || (nowhere == all && table_can_evict(t, file))) {
        table_set_promised(t, file, false);
        tier = table_reserve_first(t, need);
        if (tier < 0)
            table_set_promised(t, file, kept > 0);
    } else if (extents_for(t, file, DESTINATION_SPARE) == all) {
        tier = table_reserve_spare(t, need);
    }
    if (tier >= 0)
        return tier;
    if (is_mapped(t, file) || (!kept && (nowhere == all || !t->uses_pool)))
        return -1;
    table_set_pieces(t, file, true);
    return 0;
}

/* table_make_whole - returns the Tier with spare room for all of a File in pieces, if this node
 * keeps every Extent; -1: none, except room promised to others. `takes`: reserves this room. */
int table_make_whole(struct table *t, uint32_t file, bool takes)
{
    uint64_t need = footprint(t->options.sizes[file]);
    uint64_t all = t->options.first[file + 1] - t->options.first[file];
    pthread_mutex_lock(&t->lock);
    bool kept = extents_for(t, file, DESTINATION_TIER) == all;
    int tier = kept ? table_reserve_spare(t, need) : -1;
    if (tier >= 0 && !takes)
        t->accounts[tier].reserved -= need;
    if (tier >= 0 && takes) {
        table_set_pieces(t, file, false);
        table_set_promised(t, file, false);
    }
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* plain_need - returns the room of an Extent that is not packed. */
static uint64_t plain_need(const struct table *t, uint32_t file, uint32_t extent)
{
    return footprint(extent_bytes(t->options.sizes[file], extent));
}

static const struct monarch_table_row *row_of(const struct table *t, uint32_t file,
                                              uint32_t extent)
{
    return &t->rows[table_row(t, file, extent)];
}

/* table_extent_elsewhere - no node keeps the Extent: programs read the origin. */
bool table_extent_elsewhere(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    bool elsewhere = row_of(t, file, extent)->destination == DESTINATION_NOWHERE;
    pthread_mutex_unlock(&t->lock);
    return elsewhere;
}

/* table_keeps_extent - this node is to keep the Extent. */
bool table_keeps_extent(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    bool keeps = row_of(t, file, extent)->destination == DESTINATION_TIER;
    pthread_mutex_unlock(&t->lock);
    return keeps;
}

/* reserve_plain - reserves room for an Extent in the fastest Tier that has it, unless that Tier
 * packs the Extent, which is first stored in the Pool. Returns the Tier, or -1. */
static int reserve_plain(struct table *t, uint32_t file, uint32_t extent, bool *packs)
{
    for (uint32_t i = 0; i < t->options.tiers; i++) {
        uint64_t need = table_extent_need(t, i, file, extent);
        if (!table_reserve_in(t, i, need))
            continue;
        *packs = table_packs(t, i, file);
        if (*packs)
            t->accounts[i].reserved -= need;
        return *packs ? -1 : (int)i;
    }
    return -1;
}

/* table_take_extent - takes room for an Extent; returns the Tier, the Pool if allowed, or -1. If
 * only the Pool is allowed, the Extent is already packed. */
int table_take_extent(struct table *t, uint32_t file, uint32_t extent, unsigned where)
{
    uint64_t need = plain_need(t, file, extent);
    int tier = -1;
    pthread_mutex_lock(&t->lock);
    enum monarch_destination to = row_of(t, file, extent)->destination;
    bool packs = where == TAKE_POOL;
    if (where & TAKE_TIER && to == DESTINATION_TIER)
        tier = reserve_plain(t, file, extent, &packs);
    bool passes = where & TAKE_POOL && to != DESTINATION_NOWHERE && t->uses_pool;
    if (tier < 0 && (packs || passes))
        tier = table_reserve_pool(t, need, false);
    if (tier >= 0) {
        t->accounts[tier].reserved -= need;
        t->accounts[tier].used += need;
    }
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* table_pool_takes - an empty Pool would have room for an Extent. `packs`: a packed Tier holds it,
 * or is to. */
bool table_pool_takes(struct table *t, uint32_t file, uint32_t extent, bool packs)
{
    pthread_mutex_lock(&t->lock);
    const struct monarch_account *pool = &t->accounts[t->options.tiers];
    bool takes = (t->uses_pool || packs) && pool->in_service &&
                 pool->capacity >= plain_need(t, file, extent);
    pthread_mutex_unlock(&t->lock);
    return takes;
}

/* table_give_extent - frees the room of an Extent. */
void table_give_extent(struct table *t, uint32_t file, uint32_t extent, uint32_t tier)
{
    pthread_mutex_lock(&t->lock);
    table_free_room(t, tier, plain_need(t, file, extent));
    pthread_mutex_unlock(&t->lock);
}
