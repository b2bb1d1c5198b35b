/* pack_drops.c - empties whole segments of packed Tiers: the newest if memory is short, and the
 * least recently used if other Files need the room. */
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"
#include "shared/recency.h"

/* packs_drop_frame - removes the frame of an Extent. */
void packs_drop_frame(struct packs *p, uint32_t file, uint32_t extent)
{
    table_forget_packed(p->table, file, extent);
    packs_forget(p, packs_row(p, file, extent));
}

/* packs_drop_damaged - does the same, and counts that the frame was damaged. */
void packs_drop_damaged(struct packs *p, uint32_t file, uint32_t extent)
{
    table_drop_packed(p->table, file, extent);
    packs_forget(p, packs_row(p, file, extent));
}

/* last_segment - returns the newest segment of a Tier that holds frames, plus 1; 0: none. */
static uint32_t last_segment(const struct packs *p, uint32_t tier)
{
    for (uint32_t n = p->segment_count; n; n--)
        if (p->segments[n - 1].tier == tier && p->segments[n - 1].held)
            return n;
    return 0;
}

/* drop_frames - drops the frames of one File in a segment; returns the number of dropped small
 * Files. */
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

/* drop - empties a segment: Files with frames in it are not packed any more. A thread that reads it
 * meanwhile finds a truncated frame. Adds the number of Files; returns the freed bytes. */
static uint64_t drop(struct packs *p, uint32_t number, uint32_t reason, uint64_t *files)
{
    for (uint32_t file = 0; file < p->job->catalog->file_count; file++)
        *files += drop_frames(p, number, file, reason);
    return packs_empty(p, number);
}

/* packs_drop_newest - empties the newest segments of a Tier whose memory is needed, until `bytes`
 * are freed; returns the freed bytes. Their Files are absent for the reason. */
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

/* packs_uses - adds up the ages of the Files of each segment; `uses` has SEGMENTS_MAX elements. */
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

/* packs_drop - empties a segment; returns the freed bytes. Its Files can be requested again. */
uint64_t packs_drop(struct packs *p, uint32_t segment, uint64_t *files)
{
    pthread_mutex_lock(&p->lock);
    uint64_t freed = drop(p, segment + 1, REASON_NONE, files);
    pthread_mutex_unlock(&p->lock);
    return freed;
}
