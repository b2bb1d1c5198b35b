/* table_extents.c - the room of Extents of large Files in packed Tiers. What table_packs.c is
 * for small Files.
 */
#include "dataplane/extents/table.h"

#include <errno.h>

#include "dataplane/base/clock.h"
#include "dataplane/media/pack_index.h"
#include "shared/presence.h"

enum { NO_TIER = -1 };

/* fitting - the first Tier with room for an Extent, as a frame where it packs; NO_TIER. */
static int fitting(const struct table *t, uint32_t file, uint32_t extent)
{
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (table_tier_need(t, i, file, extent) <= table_free_in(t, i))
            return (int)i;
    return NO_TIER;
}

/* table_extents_packed - a large File whose Extents this node keeps is held packed: no plain
 * Tier that is faster has room for all of it. The caller holds the lock. */
bool table_extents_packed(const struct table *t, uint32_t file)
{
    uint64_t need = footprint(t->options.sizes[file]);
    for (uint32_t i = 0; i < t->options.tiers; i++) {
        if (table_packs_extents(t, i, file))
            return true;
        if (need <= table_free_in(t, i))
            return false;
    }
    return false;
}

/* table_extents_tier - the Tier that packs Extents of a File; -1: none. */
int table_extents_tier(struct table *t, uint32_t file)
{
    int tier = -1;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; tier < 0 && i < t->options.tiers; i++)
        if (table_packs_extents(t, i, file))
            tier = (int)i;
    pthread_mutex_unlock(&t->lock);
    return tier;
}

static int packing(const struct table *t, uint32_t file, uint32_t extent)
{
    uint64_t row = t->options.first[file] + extent;
    if (t->rows[row].destination != DESTINATION_TIER)
        return NO_TIER;
    int tier = fitting(t, file, extent);
    return tier >= 0 && table_packs_extents(t, (uint32_t)tier, file) ? tier : NO_TIER;
}

/* table_extent_packing - the Tier in which an Extent is to be packed; -1: none. */
int table_extent_packing(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    int tier = packing(t, file, extent);
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* table_reserve_frame - the same, with the room that its frame is expected to take. */
int table_reserve_frame(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    int tier = packing(t, file, extent);
    if (tier >= 0) {
        t->accounts[tier].reserved += table_tier_need(t, (uint32_t)tier, file, extent);
        t->frames_ns[tier] = clock_ns();
    }
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* table_give_frame - gives that room back. */
void table_give_frame(struct table *t, const struct monarch_order *order)
{
    pthread_mutex_lock(&t->lock);
    t->accounts[order->tier].reserved -= table_frame_need(t, order);
    pthread_mutex_unlock(&t->lock);
}

/* table_count_extent - an Extent was packed. */
void table_count_extent(struct table *t, const struct packed_frame *frame,
                        uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    t->tally.packed_extents++;
    t->tally.packed_bytes += bytes;
    t->tally.stored_bytes += frame->bytes;
    t->tally.pack_ns += frame->ns;
    pthread_mutex_unlock(&t->lock);
}

/* set_packed - a Tier, plus 1, holds all Extents of a large File, which needs no room any
 * more; or 0. */
static void set_packed(struct table *t, uint32_t file, uint32_t packed)
{
    pthread_mutex_lock(&t->lock);
    t->tally.packed_files += packed && !t->packed[file];
    t->packed[file] = (uint8_t)packed;
    if (packed)
        table_set_promised(t, file, false);
    pthread_mutex_unlock(&t->lock);
}

/* table_show_extent - a Tier holds an Extent packed, plus 1, or 0; false: its File is not
 * large. A File is packed if all its Extents are. */
bool table_show_extent(struct table *t, uint32_t file, uint32_t extent, uint32_t packed)
{
    uint64_t extents = t->options.first[file + 1] - t->options.first[file];
    int64_t large = t->flags ? presence_find(t->flags, file) : -1;
    if (large < 0)
        return false;
    _Atomic uint8_t *all = presence_packed(t->flags, (uint32_t)large);
    atomic_store(&all[extent], (uint8_t)packed);
    for (uint64_t i = 0; packed && i < extents; i++)
        packed = atomic_load(&all[i]);
    set_packed(t, file, packed);
    return true;
}

/* table_adopt_extent - a Tier holds the frame of an Extent from an earlier job, whose room is
 * taken. False: the File is offered plain, or was written. */
bool table_adopt_extent(struct table *t, uint32_t tier,
                        const struct monarch_pack_entry *entry, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool may = !t->offers[file] && !table_written(t, file);
    pthread_mutex_unlock(&t->lock);
    if (!may || !table_show_extent(t, file, entry->extent, tier + 1))
        return false;
    pthread_mutex_lock(&t->lock);
    t->tally.packed_extents++;
    t->tally.packed_bytes += entry->plain;
    t->tally.stored_bytes += entry->bytes;
    t->tally.adopted_bytes += entry->plain;
    t->tally.adopted_files += t->packed[file] != 0;
    pthread_mutex_unlock(&t->lock);
    return true;
}

/* table_count_decoded - some of an Extent was decoded. */
void table_count_decoded(struct table *t, uint64_t bytes, uint64_t ns)
{
    pthread_mutex_lock(&t->lock);
    t->tally.unpacked_bytes += bytes;
    t->tally.unpack_ns += ns;
    pthread_mutex_unlock(&t->lock);
}

/* table_count_dropped - the frame of an Extent is damaged. */
void table_count_dropped(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    t->tally.frames_dropped++;
    pthread_mutex_unlock(&t->lock);
}

/* table_pool_is_short - Extents that wait to be packed may keep programs from the Pool. */
bool table_pool_is_short(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    const struct monarch_account *pool = &t->accounts[t->options.tiers];
    bool is_short = account_free(pool) < pool->capacity / 4;
    pthread_mutex_unlock(&t->lock);
    return is_short;
}
