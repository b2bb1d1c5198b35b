/* table_sources.c - reads rows of the staging table: the peers to ask for a File or an Extent, and
 * the room for the part that this node keeps. */
#include "dataplane/extents/table.h"

#include "dataplane/extents/order.h"
#include "shared/presence.h"

enum {
    FRAME_OVERHEAD = 64,
    RATIO_UNIT = 1024,
    POOL_PARTS = 4, /* a packed Extent takes at most 1/POOL_PARTS of the Pool */
};

static uint32_t root_of(const struct table *t, uint32_t file)
{
    uint32_t root = t->options.roots - 1;
    while (root && t->options.bases[root] > file)
        root--;
    return root;
}

/* table_written - the File is marked *written*, by itself or with its root. */
bool table_written(const struct table *t, uint32_t file)
{
    const _Atomic uint8_t *marks = (const _Atomic uint8_t *)t->options.marks;
    const _Atomic uint8_t *roots = (const _Atomic uint8_t *)t->options.root_marks;
    return atomic_load_explicit(&marks[file], memory_order_acquire) ||
           atomic_load_explicit(&roots[root_of(t, file)], memory_order_acquire);
}

/* table_in_part - the File may be staged in part: each of its Extents has its own source. */
bool table_in_part(const struct table *t, uint32_t file)
{
    return t->flags && presence_find(t->flags, file) >= 0;
}

static bool usable(const struct table *t, uint16_t peer)
{
    return peer < t->peer_count && (t->peers[peer] & PEER_USABLE);
}

/* table_choose_source - returns the first peer that may be asked, else the origin. */
uint32_t table_choose_source(const struct table *t, const struct monarch_table_row *row)
{
    for (int i = 0; i < SOURCES_MAX && row->sources[i] != NO_SOURCE; i++)
        if (usable(t, row->sources[i]))
            return row->sources[i];
    return NO_PEER;
}

/* table_may_fill - fill may order this File or Extent: the first node that is alive and may be
 * reading it from the origin can be asked. While that one cannot be reached, no other node reads
 * it. `tried` sources are skipped. */
bool table_may_fill(const struct table *t, const struct monarch_table_row *row,
                    int tried)
{
    for (int i = tried; i < SOURCES_MAX && row->sources[i] != NO_SOURCE; i++) {
        uint16_t peer = row->sources[i];
        if (peer < t->peer_count && (t->peers[peer] & PEER_GONE))
            continue;
        return usable(t, peer);
    }
    return true;
}

/* table_page_source - sets the peer to ask for the Pages of an order, or NO_PEER. False: fill must
 * not fetch them now. */
bool table_page_source(struct table *t, struct monarch_order *order)
{
    uint64_t extent = order_extent(order);
    pthread_mutex_lock(&t->lock);
    const struct monarch_table_row *row =
        &t->rows[t->options.first[order->file] + extent];
    bool may = !(order->kind & MONARCH_BACKGROUND) ||
               table_may_fill(t, row, order->tried);
    order->peer = NO_PEER;
    while (order->tried < SOURCES_MAX && row->sources[order->tried] != NO_SOURCE &&
           !usable(t, row->sources[order->tried]))
        order->tried++;
    if (order->tried < SOURCES_MAX && row->sources[order->tried] != NO_SOURCE)
        order->peer = row->sources[order->tried];
    pthread_mutex_unlock(&t->lock);
    return may;
}

/* table_count_pages - counts bytes of a large File, fetched from a peer or (NO_PEER) the origin. */
void table_count_pages(struct table *t, uint32_t peer, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    if (peer == NO_PEER) {
        t->tally.staged_bytes += bytes;
    } else {
        t->tally.peer_bytes += bytes;
        t->fetched[peer % PEERS_MAX].bytes += bytes;
    }
    pthread_mutex_unlock(&t->lock);
}

/* table_packs - the Tier would hold the Extents of the File as frames. A File that is larger than
 * an Extent and staged as a whole is never packed. */
bool table_packs(const struct table *t, uint32_t tier, uint32_t file)
{
    uint64_t size = t->options.sizes[file], extent = extent_bytes(size, 0);
    return t->ratios[tier] && size && (extent == size || table_in_part(t, file)) &&
           footprint(extent) <= t->accounts[t->options.tiers].capacity / POOL_PARTS;
}

/* table_extent_need - returns the room of an Extent in a Tier, as far as known. */
uint64_t table_extent_need(const struct table *t, uint32_t tier, uint32_t file,
                           uint32_t extent)
{
    uint64_t bytes = extent_bytes(t->options.sizes[file], extent);
    if (!table_packs(t, tier, file))
        return footprint(bytes);
    return FRAME_OVERHEAD + bytes * RATIO_UNIT / t->ratios[tier];
}

/* table_frame_need - returns the bytes that an order for a frame has reserved. */
uint64_t table_frame_need(const struct table *t, const struct monarch_order *order)
{
    return table_extent_need(t, order->tier, order->file, order_extent(order));
}

/* table_need - returns the room in a Tier of a File that is stored as a whole, as far as known. */
uint64_t table_need(const struct table *t, uint32_t tier, uint32_t file)
{
    uint64_t size = t->options.sizes[file];
    bool plain = size > EXTENT_BYTES || table_in_part(t, file);
    return plain ? footprint(size) : table_extent_need(t, tier, file, 0);
}

/* table_kept_need - returns the room of all Extents of a File that are to be kept. */
uint64_t table_kept_need(const struct table *t, uint32_t file)
{
    uint64_t first = t->options.first[file], sum = 0;
    uint64_t count = t->options.first[file + 1] - first;
    const struct monarch_table_row *rows = &t->rows[first];
    if (!table_in_part(t, file))
        return rows->destination == DESTINATION_TIER ? table_need(t, 0, file) : 0;
    for (uint64_t i = 0; i < count; i++)
        if (rows[i].destination == DESTINATION_TIER)
            sum += table_extent_need(t, 0, file, (uint32_t)i);
    return sum;
}
