/* table_frames.c - the frames of packed Tiers in the staging table: which Extents have one, and the
 * room that it uses. A small File is one Extent.
 *
 * The room of a frame is unknown until the Extent is packed. A Transfer reserves an estimate from
 * the ratio of the Tier, set when the job begins; when it ends, the room of the frame replaces
 * that.
 */
#include "dataplane/extents/table.h"

#include <errno.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/order.h"
#include "dataplane/extents/replica_state.h"
#include "shared/presence.h"
#include "shared/recency.h"

/* monarch_table_pack - makes a Tier packed, with the expected ratio in parts of 1024. The last
 * pages of `last_pages` of its segments are beside its capacity. */
void monarch_table_pack(struct table *t, uint32_t tier, uint32_t ratio,
                        uint32_t last_pages)
{
    pthread_mutex_lock(&t->lock);
    t->ratios[tier] = ratio;
    t->last_pages[tier].beside = last_pages;
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_packed - copies the packed Files: per File its Tier plus 1, or 0. It is called
 * every second and may take long: it holds no lock. */
void monarch_table_packed(struct table *t, uint8_t *out)
{
    for (uint32_t file = 0; file < t->options.files; file++) {
        uint8_t first = t->packed[table_row(t, file, 0)];
        out[file] = first & PACKED_DUE || !table_is_packed(t, file) ? 0 : first;
    }
}

/* ---- frames --------------------------------------------------------------------------- */

/* set_packed - sets the state of an Extent; Python reads those of large Files. Returns whether
 * it had a frame. */
static bool set_packed(struct table *t, uint32_t file, uint32_t extent, uint8_t packed)
{
    uint64_t row = table_row(t, file, extent);
    int64_t large = t->flags ? presence_find(t->flags, file) : -1;
    bool had = table_has_frame(t, row);
    table_clear_due(t, file);
    atomic_store(&t->packed[row], packed);
    if (large >= 0)
        atomic_store(&presence_packed(t->flags, (uint32_t)large)[extent], packed);
    return had;
}

/* table_leave_packed - forgets all frames of a Tier. */
void table_leave_packed(struct table *t, uint32_t tier)
{
    for (uint32_t file = 0; file < t->options.files; file++)
        for (uint64_t row = t->options.first[file]; row < t->options.first[file + 1];
             row++)
            if ((t->packed[row] & ~(uint32_t)PACKED_DUE) == tier + 1)
                set_packed(t, file, (uint32_t)(row - t->options.first[file]), 0);
}

/* table_take_packed - replaces the reservation of an order by the room of its frame. -ENOSPC: the
 * Tier has no room, and the order of a small File has ended; -ENXIO: the Tier is out of service. */
int table_take_packed(struct table *t, const struct monarch_order *order,
                      const struct packed_frame *frame)
{
    struct monarch_account *a = &t->accounts[order->tier];
    uint64_t need = table_frame_need(t, order);
    int rc = 0;
    pthread_mutex_lock(&t->lock);
    uint32_t reason = table_absent_reason(t, order->file);
    if (!a->in_service)
        rc = -ENXIO;
    else if (a->used + a->reserved - need + frame->bytes +
                 table_page_ahead(t, order->tier) >
             a->capacity)
        rc = -ENOSPC;
    if (!rc) {
        a->reserved -= need;
        a->used += frame->bytes;
        t->frames_ns[order->tier] = clock_ns();
    }
    pthread_mutex_unlock(&t->lock);
    if (rc == -ENOSPC && !order->page_count)
        monarch_table_fail(t, order, reason, 0);
    return rc;
}

/* table_give_packed - reverts table_take_packed(): the frame could not be written. */
void table_give_packed(struct table *t, const struct monarch_order *order,
                       const struct packed_frame *frame)
{
    struct monarch_account *a = &t->accounts[order->tier];
    pthread_mutex_lock(&t->lock);
    a->used -= a->in_service ? frame->bytes : 0;
    a->reserved += table_frame_need(t, order);
    pthread_mutex_unlock(&t->lock);
}

/* add_frame - notes the frame of an Extent, and counts it. */
static void add_frame(struct table *t, const struct monarch_order *order,
                      const struct packed_frame *frame)
{
    struct monarch_tally *all = &t->tally;
    uint32_t file = order->file, extent = order_extent(order);
    bool was_packed = table_is_packed(t, file);
    set_packed(t, file, extent, (uint8_t)(order->tier + 1));
    bool completed = table_is_packed(t, file) && !was_packed;
    all->packed_extents += table_in_part(t, file);
    all->packed_files += completed;
    all->packed_bytes += extent_bytes(t->options.sizes[file], extent);
    all->stored_bytes += frame->bytes;
    all->raw_files += frame->raw && !table_in_part(t, file);
    all->pack_ns += frame->ns;
    if (completed)
        table_set_promised(t, file, false);
}

/* table_set_packed - notes the frame of an Extent in its Tier. -ECANCELED: the generation of the
 * order has passed; -ENXIO: the Tier is out of service. A File packed by fill is absent until it is
 * decoded. */
int table_set_packed(struct table *t, const struct monarch_order *order,
                     const struct packed_frame *frame)
{
    uint32_t file = order->file;
    struct monarch_account *a = &t->accounts[order->tier];
    bool from_pool = order->kind & MONARCH_LOCAL, ended = true;
    pthread_mutex_lock(&t->lock);
    bool lost = !a->in_service; /* with its frames */
    if (!from_pool && !lost)
        ended = replica_state_end(t->words, file, order->word,
                                  STATE_WORD(REPLICA_ABSENT, 0, REASON_NONE) |
                                      STATE_CONFIRMED);
    if (!ended || lost) { /* the failed Transfer releases its reservation */
        a->reserved += table_frame_need(t, order);
        pthread_mutex_unlock(&t->lock);
        return lost ? -ENXIO : -ECANCELED;
    }
    add_frame(t, order, frame);
    if (t->flags && !order->page_count)
        recency_note(t->flags, file);
    if (!from_pool)
        table_count_published(t, order, 0);
    if (!order->page_count)
        table_count_idle(t);
    pthread_mutex_unlock(&t->lock);
    if (!from_pool)
        replica_state_wake(t->words, file);
    return 0;
}

/* table_forget_packed - notes that an Extent has no frame any more. */
void table_forget_packed(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    if (table_has_frame(t, table_row(t, file, extent)))
        set_packed(t, file, extent, 0);
    pthread_mutex_unlock(&t->lock);
}

/* table_drop_packed - notes that the frame of an Extent is damaged, or cannot be read. */
void table_drop_packed(struct table *t, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&t->lock);
    t->tally.frames_dropped += set_packed(t, file, extent, 0);
    pthread_mutex_unlock(&t->lock);
}

/* table_evict_packed - notes that the frame of an Extent was evicted; a small File is absent for
 * the reason. Returns how many small Files were evicted. */
uint32_t table_evict_packed(struct table *t, uint32_t file, uint32_t extent,
                            uint32_t reason)
{
    pthread_mutex_lock(&t->lock);
    bool packed = set_packed(t, file, extent, 0), large = table_in_part(t, file);
    pthread_mutex_unlock(&t->lock);
    if (!large)
        table_refuse(t, file, reason);
    return packed && !large;
}

/* table_adopt_packed - notes that a Tier holds the frame of an Extent from an earlier job, whose
 * room is taken. False: the Extent has a frame, its File is offered plain, or was written. */
bool table_adopt_packed(struct table *t, const struct monarch_order *order,
                        const struct packed_frame *frame)
{
    uint32_t file = order->file;
    uint64_t row = table_row(t, file, order_extent(order));
    pthread_mutex_lock(&t->lock);
    bool may = !t->packed[row] && !t->offers[file] && !table_written(t, file);
    if (may) {
        add_frame(t, order, frame);
        t->tally.adopted_files += table_is_packed(t, file);
        t->tally.adopted_bytes += extent_bytes(t->options.sizes[file],
                                               order_extent(order));
    }
    pthread_mutex_unlock(&t->lock);
    return may;
}

/* ---- the room of segments ------------------------------------------------------------- */

/* table_take_room - takes room for frames without a Transfer; false: no room. */
bool table_take_room(struct table *t, uint32_t tier, uint64_t bytes)
{
    struct monarch_account *a = &t->accounts[tier];
    pthread_mutex_lock(&t->lock);
    bool taken = a->in_service && a->used + a->reserved + bytes <= a->capacity;
    a->used += taken ? bytes : 0;
    pthread_mutex_unlock(&t->lock);
    return taken;
}

/* table_give_room - frees the room of frames. */
void table_give_room(struct table *t, uint32_t tier, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    table_free_room(t, tier, bytes);
    pthread_mutex_unlock(&t->lock);
}

/* table_add_room - counts room that frames use beyond that taken by their Extents. */
void table_add_room(struct table *t, uint32_t tier, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    t->accounts[tier].used += t->accounts[tier].in_service ? bytes : 0;
    pthread_mutex_unlock(&t->lock);
}

/* table_round_pack - takes a page for a segment that begins, or frees it: the file of a segment has
 * whole pages, and its frames fill the last one in part. The page is one beside the capacity while
 * some are left, else it is reserved. False: no space is free. */
bool table_round_pack(struct table *t, uint32_t tier, bool rounds)
{
    struct monarch_account *a = &t->accounts[tier];
    struct last_pages *pages = &t->last_pages[tier];
    pthread_mutex_lock(&t->lock);
    uint64_t page = pages->segments + !!rounds > pages->beside ? PAGE_BYTES : 0;
    bool taken = rounds && account_free(a) >= page;
    if (taken) {
        pages->segments++;
        a->reserved += page;
    }
    if (!rounds) {
        pages->segments--;
        a->reserved -= page;
    }
    pthread_mutex_unlock(&t->lock);
    return taken;
}
