/* packed_extents.c - the Extents of large Files that packed Tiers hold, and those that wait to be
 * packed.
 *
 * Such an Extent is first stored in a file of its own in the Pool, whatever its source, and packed
 * when it is complete and time permits. Until then it stays there if possible. Later, requested
 * Blocks are decoded into such a file.
 */
#include "dataplane/extents/packed_extents.h"

#include <stdlib.h>
#include <string.h>

#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"

/* extent_is_packed - this node holds the Extent packed. */
bool extent_is_packed(struct partials *parts, uint32_t file, uint32_t extent)
{
    return parts->packs &&
           packs_has(parts->packs, packs_row(parts->packs, file, extent));
}

/* extent_goes_packed - the Extent is to be packed, and is not packed yet. */
bool extent_goes_packed(struct partials *parts, const struct partial *p,
                        uint32_t extent)
{
    return parts->packs && p->pieces && !p->each[extent].stays_plain &&
           !extent_is_packed(parts, p->order.file, extent) &&
           table_extent_packing(parts->table, p->order.file, extent) >= 0;
}

/* extent_arrived - queues an Extent to be packed, if necessary, when its last Page is present. */
void extent_arrived(struct partials *parts, struct partial *p, uint32_t extent)
{
    if (extent_goes_packed(parts, p, extent))
        packs_queue(parts->packs, p->order.file, extent);
}

/* extents_forget - removes the frames of a large File that is not staged any more. */
void extents_forget(struct partials *parts, const struct partial *p)
{
    for (uint32_t i = 0; parts->packs && i < p->extents; i++)
        if (extent_is_packed(parts, p->order.file, i))
            packs_drop_frame(parts->packs, p->order.file, i);
}

/* extent_keep_digests - keeps the checksums that the decoded Blocks of an adopted Extent must have;
 * false: out of memory. Under the lock of the packs. */
bool extent_keep_digests(struct packs *p, uint64_t row, const uint64_t *digests,
                         uint32_t blocks)
{
    size_t n = blocks * sizeof(*digests);
    if (!p->digests)
        p->digests = calloc(packs_row(p, (uint32_t)p->job->catalog->file_count, 0),
                            sizeof(*p->digests));
    if (!p->digests)
        return false;
    free(p->digests[row]);
    p->digests[row] = malloc(n);
    if (p->digests[row])
        memcpy(p->digests[row], digests, n);
    return p->digests[row] != NULL;
}

/* extent_digests - returns the checksums of the Blocks of a complete Extent that no thread uses
 * any more; NULL: they are not known. */
const uint64_t *extent_digests(const struct partials *parts, uint32_t file,
                               uint32_t extent)
{
    const struct packs *packs = parts->packs;
    int64_t large = presence_find(parts->job->flags, file);
    const struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p)
        return p->ended ? NULL : p->digests + (size_t)extent * EXTENT_BLOCKS;
    return packs->digests ? packs->digests[packs_row(packs, file, extent)] : NULL;
}

/* extents_restore - restores the checksums of Extents of an earlier job in a new partial
 * Replica. */
void extents_restore(struct partials *parts, struct partial *p)
{
    struct packs *packs = parts->packs;
    if (!packs)
        return;
    pthread_mutex_lock(&packs->lock);
    for (uint32_t i = 0; packs->digests && i < p->extents; i++) {
        struct block_run all = pages_blocks(partial_extent_pages(p, i));
        const uint64_t *kept = packs->digests[packs_row(packs, p->order.file, i)];
        if (!kept)
            continue;
        memcpy(p->digests + all.first, kept, all.count * sizeof(*kept));
        p->each[i].digested = blocks_mask(all.first, all.count);
    }
    pthread_mutex_unlock(&packs->lock);
}

static bool is_pooled(const struct partial *p, uint32_t extent)
{
    return atomic_load_explicit(&p->places[extent], memory_order_relaxed) & PLACE_FILE;
}

/* begin - claims a complete Extent while it is packed, and reserves the room of its frame. */
static bool begin(struct partials *parts, struct partial *p, uint32_t extent,
                  struct monarch_order *out)
{
    if (!p || p->ended || extent >= p->extents || !is_pooled(p, extent) ||
        p->each[extent].claimed)
        return false;
    struct page_run all = partial_extent_pages(p, extent);
    if (!partial_is_whole(p, extent) || !extent_goes_packed(parts, p, extent))
        return false;
    int tier = table_reserve_frame(parts->table, p->order.file, extent);
    if (tier < 0)
        return false;
    pages_claim_all(p, extent);
    *out = p->order;
    out->kind = MONARCH_LOCAL | MONARCH_BACKGROUND;
    out->tier = (uint16_t)tier;
    out->peer = NO_PEER;
    out->first_page = all.first;
    out->page_count = all.count;
    return true;
}

/* extent_begin_packing - makes the order to pack an Extent; false: it cannot be packed now. */
bool extent_begin_packing(struct partials *parts, const struct to_pack *one,
                          struct monarch_order *out)
{
    int64_t large = presence_find(parts->job->flags, one->file);
    pthread_mutex_lock(&parts->lock);
    bool begun = large >= 0 && begin(parts, parts->all[large], one->extent, out);
    pthread_mutex_unlock(&parts->lock);
    return begun;
}

/* extent_packing_end - ends the packing of a complete Extent, even if it has failed: the Extent may
 * leave the Pool, and fill may fetch another one. */
void extent_packing_end(struct partials *parts, struct partial *p, uint32_t extent)
{
    pthread_mutex_lock(&parts->lock);
    pages_unclaim(p, partial_extent_pages(p, extent));
    if (p->postponed)
        partial_clear_postponed(parts, p);
    partial_wake(parts, p, extent);
    pthread_mutex_unlock(&parts->lock);
}

/* extent_packing_undo - undoes an order to pack an Extent that could not be queued. */
void extent_packing_undo(struct partials *parts, const struct monarch_order *order)
{
    uint32_t extent = order_extent(order);
    int64_t large = presence_find(parts->job->flags, order->file);
    table_give_frame(parts->table, order);
    pthread_mutex_lock(&parts->lock);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p && p->order.word == order->word)
        pages_unclaim(p, partial_extent_pages(p, extent));
    pthread_mutex_unlock(&parts->lock);
}

/* extent_claim_piece - claims all free Pages of a piece of a frame; stores per Block the bits of
 * these and of the claimed Pages of `asked`. So the piece is decoded only once. */
void extent_claim_piece(struct partials *parts, struct partial *p,
                        struct page_run piece, struct page_run asked,
                        uint64_t out[PIECE_BLOCKS])
{
    uint32_t until = asked.first + asked.count;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t n, at = piece.first, end = at + piece.count; at < end; at += n) {
        uint32_t block = at / BLOCK_PAGES;
        n = pages_in_block(at, end);
        uint32_t from = at > asked.first ? at : asked.first;
        uint32_t to = at + n < until ? at + n : until;
        uint64_t before = p->claimed[block];
        uint64_t own = from < to ? before & pages_mask(from, to - from) : 0;
        if (!p->ended)
            pages_claim(p, (struct page_run){at, n});
        *out++ = own | (p->claimed[block] & ~before);
    }
    pthread_mutex_unlock(&parts->lock);
}
