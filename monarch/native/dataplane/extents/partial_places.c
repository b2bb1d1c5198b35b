/* partial_places.c - the places of the Extents of a large File in pieces: the sparse file of a
 * Tier, or a file per Extent in the Pool, which is removed as a whole. Extents that are packed, or
 * will be, are in the Pool, too. */
#include <string.h>
#include <unistd.h>

#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/table.h"

/* partial_set_places - sets the places of the Extents of a new partial Replica, as far as known. */
void partial_set_places(struct partials *parts, struct partial *p)
{
    uint32_t file = p->order.file;
    for (uint32_t i = 0; i < p->extents; i++) {
        uint8_t place = (uint8_t)p->order.tier;
        if (p->pieces)
            place = table_extent_elsewhere(parts->table, file, i) ? PLACE_ORIGIN
                                                                  : PLACE_NONE;
        atomic_store_explicit(&p->places[i], place, memory_order_relaxed);
    }
    uint32_t pieces = p->pieces;
    bool packed = false;
    for (uint32_t i = 0; i < p->extents; i++)
        packed = packed || extent_is_packed(parts, file, i) ||
                 extent_goes_packed(parts, p, i);
    pieces |= p->pieces && packed ? PIECES_PACKED : 0;
    p->gathers = !p->pieces && packed;
    atomic_store_explicit((_Atomic uint32_t *)&p->part->pieces, pieces,
                          memory_order_release);
}

static bool is_pooled(uint8_t place)
{
    return place & PLACE_FILE;
}

/* invalidate_lookups - makes programs repeat all that they have looked up and read before. */
static void invalidate_lookups(struct partial *p)
{
    const uint32_t kinds = PIECES_PACKED | PIECES_STAY;
    _Atomic uint32_t *pieces = (_Atomic uint32_t *)&p->part->pieces;
    uint32_t now = atomic_load(pieces), next = (now + 1) & ~kinds;
    atomic_store(pieces, (next ? next : 1) | (now & kinds));
}

/* forget_pages - clears the Pages of an Extent; known checksums of Blocks stay. */
static void forget_pages(struct partial *p, uint32_t extent)
{
    struct extent *e = &p->each[extent];
    for (uint32_t i = 0; i < EXTENT_BLOCKS; i++) {
        uint32_t block = extent * EXTENT_BLOCKS + i;
        atomic_store(&p->words[block], 0);
        if (!(e->digested >> i & 1))
            p->digests[block] = 0;
    }
    p->present -= e->present;
    e->present = e->asked = e->extra = 0;
}

/* partial_hide_extent - hides the Pages in the file of one Extent from programs; returns the Tier
 * of that file. A program reads the count of `pieces` before it looks up Pages and after it has
 * read them: so the count must change after the last Page is hidden, and before another file,
 * without these Pages, can have the name. */
uint32_t partial_hide_extent(struct partial *p, uint32_t extent)
{
    uint32_t tier = partial_place(p, extent) & ~(uint32_t)PLACE_FILE;
    forget_pages(p, extent);
    partial_set_place(p, extent, PLACE_NONE);
    p->each[extent].removals++;
    invalidate_lookups(p);
    return tier;
}

/* partial_remove_extent - removes the file of a hidden Extent. */
void partial_remove_extent(struct partials *parts, const struct partial *p,
                           uint32_t extent, uint32_t tier)
{
    char name[EXTENT_NAME_BYTES + 1];
    memcpy(name, p->name, REPLICA_NAME_BYTES);
    presence_extent_name(extent, name);
    unlinkat(parts->job->tiers[tier], name, 0);
    table_give_extent(parts->table, p->order.file, extent, tier);
}

static void give_up_file(struct partials *parts, struct partial *p, uint32_t extent)
{
    partial_remove_extent(parts, p, extent, partial_hide_extent(p, extent));
}

/* partial_give_up_extent - removes the damaged file of an Extent from the Pool. It takes the lock
 * itself. */
void partial_give_up_extent(struct partials *parts, struct partial *p, uint32_t extent)
{
    pthread_mutex_lock(&parts->lock);
    if (is_pooled(partial_place(p, extent)))
        give_up_file(parts, p, extent);
    pthread_mutex_unlock(&parts->lock);
}

/* partial_leave_places - frees the room of its Extents; its sparse files are already removed. */
void partial_leave_places(struct partials *parts, struct partial *p)
{
    for (uint32_t i = 0; i < p->extents && !job_stopping(parts->job); i++) {
        uint8_t place = partial_place(p, i);
        if (is_pooled(place))
            give_up_file(parts, p, i);
        else if (place < TIERS_MAX && p->pieces)
            table_give_extent(parts->table, p->order.file, i, place);
        partial_set_place(p, i, PLACE_NONE);
    }
    if (!job_stopping(parts->job))
        extents_forget(parts, p);
}

/* may_yield - the Pool can give up an Extent. An Extent to be packed stays until then, unless its
 * File has failed; for fill, all Extents stay that are not packed. */
static bool may_yield(struct partials *parts, const struct partial *p, uint32_t extent,
                      bool fill)
{
    if (p->each[extent].claimed)
        return false;
    if (fill)
        return extent_is_packed(parts, p->order.file, extent);
    return !extent_goes_packed(parts, p, extent) ||
           atomic_load((_Atomic uint32_t *)&p->part->failures);
}

/* yield_one - gives up the oldest Extent in the Pool that no Transfer writes to and that may be
 * given up; false: none. */
static bool yield_one(struct partials *parts, bool fill)
{
    struct pooled_extent oldest;
    for (uint32_t n = parts->pooled.count; n; n--) {
        ring_pop(&parts->pooled, &oldest);
        struct partial *p = parts->all[oldest.large];
        if (!p || p->ended || oldest.extent >= p->extents ||
            !is_pooled(partial_place(p, oldest.extent)))
            continue; /* already removed */
        if (!may_yield(parts, p, oldest.extent, fill)) {
            ring_push(&parts->pooled, &oldest);
            continue;
        }
        give_up_file(parts, p, oldest.extent);
        return true;
    }
    return false;
}

/* hand_rest - passes all Blocks of an Extent of which no Page is being copied to the listening
 * thread, as partial_hand() does; false: none. */
static bool hand_rest(struct partials *parts, struct partial *p, uint32_t extent)
{
    const struct claiming how = {.blocks = true};
    struct page_run all = partial_extent_pages(p, extent), run;
    uint32_t end = all.first + all.count;
    struct monarch_order order = p->order;
    bool handed = false;
    order.kind = (order.kind & MONARCH_PARTLY) | MONARCH_ASKED;
    while (all.first < end && (run = pages_free_run(p, all, &how)).count) {
        all.first = run.first + run.count;
        all.count = end - all.first;
        order.first_page = run.first;
        order.page_count = run.count;
        if (!ring_push(&parts->handed, &order))
            break;
        pages_claim(p, run);
        handed = true;
    }
    if (handed)
        job_ring(parts->job);
    return handed;
}

/* complete_one - orders the rest of the oldest Extent that waits to be packed and that no Transfer
 * copies: it can leave the Pool after that. */
static void complete_one(struct partials *parts)
{
    struct pooled_extent oldest;
    bool found = false;
    for (uint32_t n = parts->pooled.count; n; n--) {
        ring_pop(&parts->pooled, &oldest);
        ring_push(&parts->pooled, &oldest);
        struct partial *p = parts->all[oldest.large];
        bool there = p && !p->ended && oldest.extent < p->extents &&
                     is_pooled(partial_place(p, oldest.extent));
        if (!found && there && !p->each[oldest.extent].claimed &&
            extent_goes_packed(parts, p, oldest.extent))
            found = hand_rest(parts, p, oldest.extent);
    }
}

/* partial_yield_pool - makes room in the Pool for a File that programs wait for. It takes the lock
 * itself. */
void partial_yield_pool(struct partials *parts)
{
    if (!parts->count)
        return;
    pthread_mutex_lock(&parts->lock);
    yield_one(parts, false);
    pthread_mutex_unlock(&parts->lock);
}

/* take_room - takes room for an Extent in a Tier or in the Pool, which makes room; -1: none. */
static int take_room(struct partials *parts, const struct partial *p, uint32_t extent,
                     bool fill)
{
    uint32_t file = p->order.file;
    bool packed = extent_is_packed(parts, p->order.file, extent);
    bool packs = packed || extent_goes_packed(parts, p, extent);
    unsigned where = packed ? TAKE_POOL : fill ? TAKE_TIER : TAKE_TIER | TAKE_POOL;
    int tier = table_take_extent(parts->table, file, extent, where);
    while (tier < 0 && (!fill || packs) &&
           table_pool_takes(parts->table, file, extent, packs) &&
           yield_one(parts, fill))
        tier = table_take_extent(parts->table, file, extent, where);
    if (tier < 0 && !fill)
        complete_one(parts);
    return tier;
}

/* partial_has_place - an Extent has room, or takes it now. If it has none and the Pool cannot take
 * it, programs read it from the origin from now on. */
bool partial_has_place(struct partials *parts, struct partial *p, uint32_t extent,
                       bool fill)
{
    uint8_t place = partial_place(p, extent);
    if (place == PLACE_ORIGIN)
        return false;
    if (place != PLACE_NONE)
        return true;
    int tier = take_room(parts, p, extent, fill);
    if (tier < 0) {
        bool packs = extent_is_packed(parts, p->order.file, extent) ||
                     extent_goes_packed(parts, p, extent);
        if (!table_pool_takes(parts->table, p->order.file, extent, packs))
            partial_set_place(p, extent, PLACE_ORIGIN);
        return false;
    }
    if (!table_is_pool(parts->table, (uint32_t)tier)) {
        partial_set_place(p, extent, (uint8_t)tier);
        return true;
    }
    partial_set_place(p, extent, (uint8_t)tier | PLACE_FILE);
    if (ring_push(&parts->pooled, &(struct pooled_extent){p->large, extent}))
        return true;
    give_up_file(parts, p, extent);
    return false;
}
