/* pack_drops.c - empties whole segments of packed Tiers: the newest where memory is short, and
 * those whose Files were used longest ago where others need the room.
 */
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"
#include "shared/recency.h"

/* packs_drop_frame - an Extent has no frame any more. */
void packs_drop_frame(struct packs *p, uint32_t file, uint32_t extent)
{
    table_forget_packed(p->table, file, extent);
    packs_forget(p, packs_row(p, file, extent));
}

/* packs_drop_damaged - the same, and counts that its frame was damaged. */
void packs_drop_damaged(struct packs *p, uint32_t file, uint32_t extent)
{
    table_drop_packed(p->table, file, extent);
    packs_forget(p, packs_row(p, file, extent));
}

/* last_segment - the newest one of a Tier that holds frames, plus 1; 0: there is none. */
static uint32_t last_segment(const struct packs *p, uint32_t tier)
{
    for (uint32_t n = p->segment_count; n; n--)
        if (p->segments[n - 1].tier == tier && p->segments[n - 1].held)
            return n;
    return 0;
}

/* drop_frames - those of one File that are in a segment; returns how many small Files that
 * is. */
static uint64_t drop_frames(struct packs *p, uint32_t number, uint32_t file,
                            uint32_t reason)
{
    uint64_t dropped = 0;
    uint64_t row = packs_row(p, file, 0), end = packs_row(p, file + 1, 0);
    for (uint32_t extent = 0; row < end; row++, extent++) {
        if (p->places[row].segment != number)
            continue;
        p->places[row] = (struct frame_place){0};
        dropped += table_evict_packed(p->table, file, extent, reason);
    }
    return dropped;
}

/* drop - empties a segment: Files whose frames are in it are not packed any more. Who reads
 * it at this moment finds a frame that ends too soon. Adds how many Files there were. */
static uint64_t drop(struct packs *p, uint32_t number, uint32_t reason, uint64_t *files)
{
    for (uint32_t file = 0; file < p->job->catalog->file_count; file++)
        *files += drop_frames(p, number, file, reason);
    return packs_empty(p, number);
}

/* packs_drop_newest - empties the newest segments of a Tier whose memory is needed,
 * until so much is free; returns how much. Their Files are absent for the reason. */
uint64_t packs_drop_newest(struct packs *p, uint32_t tier, uint64_t bytes,
                           uint32_t reason)
{
    uint64_t freed = 0, files = 0;
    uint32_t number;
    pthread_mutex_lock(&p->lock);
    while (freed < bytes && (number = last_segment(p, tier)))
        freed += drop(p, number, reason, &files);
    pthread_mutex_unlock(&p->lock);
    table_count(p->table, &(struct monarch_tally){.evicted_packed_files = files});
    return freed;
}

static void add_uses(const struct packs *p, uint32_t file, uint32_t age,
                     struct segment_use *uses)
{
    uint64_t row = packs_row(p, file, 0), end = packs_row(p, file + 1, 0);
    for (; row < end; row++) {
        if (!p->places[row].segment)
            continue;
        struct segment_use *use = &uses[p->places[row].segment - 1];
        use->frames++;
        use->ages += age;
    }
}

/* packs_uses - how long ago the Files of each segment were used; `uses` has SEGMENTS_MAX. */
void packs_uses(struct packs *p, struct segment_use *uses)
{
    const struct flags *flags = p->job->flags;
    uint32_t now = recency_tick(flags);
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < SEGMENTS_MAX; i++) {
        uint32_t tier = p->segments[i].tier;
        uses[i] = (struct segment_use){.tier = tier,
                                       .grows = p->tiers[tier].segment == i + 1};
    }
    for (uint32_t i = 0; i < p->job->catalog->file_count; i++)
        add_uses(p, i,
                 now - atomic_load_explicit(recency_of(flags, i), memory_order_relaxed),
                 uses);
    pthread_mutex_unlock(&p->lock);
}

/* packs_drop - empties a segment; returns how many bytes it held. Its Files can be asked
 * for. */
uint64_t packs_drop(struct packs *p, uint32_t segment, uint64_t *files)
{
    pthread_mutex_lock(&p->lock);
    uint64_t freed = drop(p, segment + 1, REASON_NONE, files);
    pthread_mutex_unlock(&p->lock);
    return freed;
}
