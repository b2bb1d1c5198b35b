/* table_packs.c - what the staging table knows of packed Tiers: which Files they hold, and
 * what room they take.
 *
 * Before a File is packed nobody knows its room. A Transfer reserves what the ratio of the
 * Tier lets expect, which is told when the job begins; when it ends, the room of the frame
 * takes its place.
 */
#include "dataplane/extents/table.h"

#include <errno.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/replica_state.h"
#include "shared/recency.h"

enum {
    CROWDED_PARTS = 3, /* packing hurries when this part of the Pool waits for it */
};

static const uint64_t CROWDED_NS = 2 * SECOND_NS;

/* monarch_table_pack - a Tier is packed; the ratio that is expected, in parts of 1024. So many
 * of its segments have their last pages beside its capacity. */
void monarch_table_pack(struct table *t, uint32_t tier, uint32_t ratio,
                        uint32_t last_pages)
{
    pthread_mutex_lock(&t->lock);
    t->ratios[tier] = ratio;
    t->last_pages[tier].beside = last_pages;
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_packed - a copy of what is packed: per File its Tier, plus 1; or 0. It is asked
 * for every second, and may be long: no lock is held. */
void monarch_table_packed(struct table *t, uint8_t *out)
{
    for (uint64_t file = 0; file < t->options.files; file++) {
        uint8_t packed = atomic_load_explicit(&t->packed[file], memory_order_relaxed);
        out[file] = packed & PACKED_DUE ? 0 : packed;
    }
}

/* ---- Files that are packed ------------------------------------------------------------ */

/* table_take_packed - exchanges what was reserved for a File for the room of its frame.
 * -ENOSPC: there is none, and the order of a small File has ended; -ENXIO: the Tier is out of
 * service. */
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

/* table_give_packed - the reverse: the frame could not be written. */
void table_give_packed(struct table *t, const struct monarch_order *order,
                       const struct packed_frame *frame)
{
    struct monarch_account *a = &t->accounts[order->tier];
    pthread_mutex_lock(&t->lock);
    a->used -= a->in_service ? frame->bytes : 0;
    a->reserved += table_frame_need(t, order);
    pthread_mutex_unlock(&t->lock);
}

static void count_packed(struct table *t, const struct monarch_order *order,
                         const struct packed_frame *frame)
{
    struct monarch_tally *all = &t->tally;
    uint64_t size = t->options.sizes[order->file];
    all->packed_files++;
    all->packed_bytes += size;
    all->stored_bytes += frame->bytes;
    all->raw_files += frame->raw;
    all->pack_ns += frame->ns;
}

/* table_set_packed - the frame of a File is in its Tier. -ECANCELED: its generation has
 * passed. What fill has packed is absent, and is decoded when a program asks for it. */
int table_set_packed(struct table *t, const struct monarch_order *order,
                     const struct packed_frame *frame)
{
    uint32_t file = order->file;
    bool from_pool = order->kind & MONARCH_LOCAL, ended = true;
    pthread_mutex_lock(&t->lock);
    if (!from_pool)
        ended = replica_state_end(t->words, file, order->word,
                                  STATE_WORD(REPLICA_ABSENT, 0, REASON_NONE) |
                                      STATE_CONFIRMED);
    if (ended) {
        table_clear_due(t, file);
        t->packed[file] = (uint8_t)(order->tier + 1);
        count_packed(t, order, frame);
        table_set_promised(t, file, false);
        if (t->flags)
            recency_note(t->flags, file);
        if (!from_pool)
            table_count_published(t, order, 0);
        table_count_idle(t);
    } else { /* who has ended it has given back what was reserved, as was done before */
        t->accounts[order->tier].reserved += table_frame_need(t, order);
    }
    pthread_mutex_unlock(&t->lock);
    if (ended && !from_pool)
        replica_state_wake(t->words, file);
    return ended ? 0 : -ECANCELED;
}

/* table_drop_packed - the frame of a File is damaged, or cannot be read. */
void table_drop_packed(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    t->tally.frames_dropped += table_is_packed(t, file);
    table_clear_due(t, file);
    t->packed[file] = 0;
    pthread_mutex_unlock(&t->lock);
}

/* table_evict_packed - the frame of a File is given up, if it has one; it is absent for the
 * reason. */
bool table_evict_packed(struct table *t, uint32_t file, uint32_t reason)
{
    pthread_mutex_lock(&t->lock);
    bool packed = table_is_packed(t, file);
    table_clear_due(t, file);
    t->packed[file] = 0;
    pthread_mutex_unlock(&t->lock);
    uint32_t seen = atomic_load_explicit(&t->words[file], memory_order_acquire);
    if (STATE_OF(seen) == REPLICA_ABSENT && STATE_REASON(seen) == REASON_NONE)
        replica_state_change(t->words, file, &seen,
                             STATE_NEXT(seen, REPLICA_ABSENT, 0, reason), true);
    return packed;
}

/* table_count_evicted_packed - the frames of so many Files were given up for their memory. */
void table_count_evicted_packed(struct table *t, uint64_t files)
{
    pthread_mutex_lock(&t->lock);
    t->tally.evicted_packed_files += files;
    pthread_mutex_unlock(&t->lock);
}

/* table_forget_packed - a packed File was written: no program may have its frame. */
void table_forget_packed(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    if (table_is_packed(t, file))
        t->packed[file] = 0;
    pthread_mutex_unlock(&t->lock);
}

/* table_take_room - takes room for frames without a Transfer: false if there is none. */
bool table_take_room(struct table *t, uint32_t tier, uint64_t bytes)
{
    struct monarch_account *a = &t->accounts[tier];
    pthread_mutex_lock(&t->lock);
    bool taken = a->in_service && a->used + a->reserved + bytes <= a->capacity;
    a->used += taken ? bytes : 0;
    pthread_mutex_unlock(&t->lock);
    return taken;
}

/* table_round_pack - takes a page for a segment that begins: its file has whole ones, of which
 * its frames fill the last one in part. It is one beside the capacity, as long as there are
 * such, else it is reserved. False: there is no room. Or gives it back. */
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

/* table_adopt_packed - a Tier holds the frame of a File from an earlier job, whose room is
 * taken. False: the File is packed, or offered, or was written. */
bool table_adopt_packed(struct table *t, uint32_t tier, uint32_t file,
                        const struct packed_frame *frame)
{
    const struct monarch_order order = {.file = file, .tier = (uint16_t)tier};
    pthread_mutex_lock(&t->lock);
    bool may = !t->packed[file] && !t->offers[file] && !table_written(t, file);
    if (may) {
        t->packed[file] = (uint8_t)(tier + 1);
        count_packed(t, &order, frame);
        t->tally.adopted_files++;
        t->tally.adopted_bytes += t->options.sizes[file];
        table_set_promised(t, file, false);
    }
    pthread_mutex_unlock(&t->lock);
    return may;
}

/* table_count_compacted - frames were copied, or segments became empty by that. */
void table_count_compacted(struct table *t, uint64_t bytes, uint64_t segments)
{
    pthread_mutex_lock(&t->lock);
    t->tally.compacted_bytes += bytes;
    t->tally.compacted_segments += segments;
    pthread_mutex_unlock(&t->lock);
}

/* table_give_room - gives back what frames used. */
void table_give_room(struct table *t, uint32_t tier, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    table_free_room(t, tier, bytes);
    pthread_mutex_unlock(&t->lock);
}

/* table_add_room - what frames use beyond what their Files have taken. */
void table_add_room(struct table *t, uint32_t tier, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    t->accounts[tier].used += t->accounts[tier].in_service ? bytes : 0;
    pthread_mutex_unlock(&t->lock);
}

/* table_count_unpacked - a File was decoded. */
void table_count_unpacked(struct table *t, uint64_t bytes, uint64_t ns)
{
    pthread_mutex_lock(&t->lock);
    t->tally.unpacked_files++;
    t->tally.unpacked_bytes += bytes;
    t->tally.unpack_ns += ns;
    pthread_mutex_unlock(&t->lock);
}

/* ---- Files in the Pool that are to be packed -------------------------------------------- */

/* table_comes_back - a File that leaves the Pool can be had again: it is packed, or others
 * leave a Tier for it. */
bool table_comes_back(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool comes = table_is_packed(t, file) || table_can_evict(t, file);
    pthread_mutex_unlock(&t->lock);
    return comes;
}

/* table_is_due - a File in the Pool is to be packed: it stays there until then. */
bool table_is_due(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool due = t->packed[file] & PACKED_DUE;
    pthread_mutex_unlock(&t->lock);
    return due;
}

/* table_pool_is_crowded - Files that are to be packed take much of the Pool, which they must
 * not leave before. */
bool table_pool_is_crowded(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    bool crowded = CROWDED_PARTS * t->due_bytes >
                   t->accounts[t->options.tiers].capacity;
    pthread_mutex_unlock(&t->lock);
    return crowded;
}

/* table_packing_tier - the packed Tier whose frames this node can use for a File that a peer is
 * asked for: where it goes, or will be packed, or another one; -1: none. */
int table_packing_tier(struct table *t, const struct monarch_order *order)
{
    uint32_t file = order->file;
    int found = -1;
    pthread_mutex_lock(&t->lock);
    if (!table_is_pool(t, order->tier) && table_packs(t, order->tier, file))
        found = order->tier;
    else if (t->packed[file] & PACKED_DUE)
        found = (t->packed[file] & ~PACKED_DUE) - 1;
    for (uint32_t i = 0; found < 0 && i < t->options.tiers; i++)
        if (table_packs(t, i, file))
            found = (int)i;
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* table_crowded_tier - the packed Tier whose room for a File is reserved, for frames that are
 * under way and may turn out to be smaller; -1: none. What is reserved for long is for others:
 * where no frame has begun or come for a time, nothing is expected of them. */
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
    return -1;
}

/* table_count_came_packed - a peer has sent a File as a frame. */
void table_count_came_packed(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    t->tally.came_packed_files++;
    pthread_mutex_unlock(&t->lock);
}

/* reserve_frame - the packed Tier that has room for a File in the Pool, or -1. One that need
 * not be kept leaves what is promised to others. */
static int reserve_frame(struct table *t, uint32_t file)
{
    uint8_t to = t->rows[t->options.first[file]].destination;
    bool keeps = to == DESTINATION_TIER || table_can_evict(t, file);
    if (!keeps && (int64_t)table_need(t, 0, file) > table_spare_bytes(t))
        return -1;
    return table_reserve_packed(t, file);
}

/* may_have_room - others leave a Tier for a File that found no room, or frames under way hold
 * some of what is for it. */
static bool may_have_room(const struct table *t, uint32_t file)
{
    if (table_can_evict(t, file))
        return !t->stays_full;
    return t->rows[t->options.first[file]].destination == DESTINATION_TIER &&
           table_crowded_tier(t, file) >= 0;
}

/* table_begin_packing - the order to pack a File that is in the Pool; false: it cannot be, or is
 * due until there is room for it. */
bool table_begin_packing(struct table *t, uint32_t file, struct monarch_order *out)
{
    uint32_t seen = atomic_load_explicit(&t->words[file], memory_order_acquire);
    int tier = -1;
    pthread_mutex_lock(&t->lock);
    bool may = t->packed[file] & PACKED_DUE && STATE_OF(seen) == REPLICA_READY &&
               table_is_pool(t, STATE_TIER(seen)) && !table_written(t, file) &&
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
