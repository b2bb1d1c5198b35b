/* table.h - the table by which the data plane stages Files without Python: the destination and
 * sources of each File, and the room of the Tiers. */
#ifndef MONARCH_STAGING_TABLE_H
#define MONARCH_STAGING_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/base/ring.h"
#include "dataplane/extents/table_api.h"
#include "shared/layout.h"

enum { PEERS_MAX = 1 << 16, PACKED_DUE = 0x80 };

struct packed_frame { /* the result of packing a File */
    uint64_t bytes, ns;
    bool raw; /* no piece of it has shrunk */
};

struct table {
    struct monarch_table_options options; /* fixed */
    _Atomic uint32_t *words;              /* of the options */
    const struct flags *flags;            /* of its engine; NULL before it has one */
    atomic_bool stopping;                 /* no Transfer begins any more */
    pthread_mutex_t lock;                 /* guards the rest */
    struct monarch_table_row *rows;       /* per Extent */
    uint8_t *peers;                       /* PEER_..., per node */
    struct monarch_fetched *fetched;      /* per node */
    uint32_t own, peer_count;
    bool uses_pool;
    struct monarch_account accounts[TIERS_MAX];
    uint8_t *promised; /* a bit per File: it is to be kept and has no room yet */
    uint64_t promised_bytes;
    uint8_t *pieces; /* a bit per File: its Extents have room one by one */
    /* Per Extent: the Tier with its frame, plus 1; or PACKED_DUE and the Tier, plus 1, for which a
     * small File is to be packed. */
    _Atomic uint8_t *packed;
    uint64_t due_bytes;         /* of Files to be packed */
    uint32_t ratios[TIERS_MAX]; /* expected, in parts of 1024; 0: not packed */
    struct last_pages {         /* of segments, partly filled by frames */
        uint32_t beside;        /* pages that the Tier has beside its capacity */
        uint32_t segments;      /* segments with a last page */
    } last_pages[TIERS_MAX];
    uint64_t frames_ns[TIERS_MAX]; /* when a frame last began or ended */
    bool evicts[TIERS_MAX];        /* Replicas are evicted for requested Files */
    bool stays_full;               /* nothing could be evicted for a File to pack */
    uint8_t *offers; /* per File: the Tier with a Replica of an earlier job, plus 1 */
    uint64_t busy_since_ns; /* when in_flight was last 0 */
    uint32_t at_origin;     /* running Transfers that may read the origin */
    uint64_t at_origin_since_ns;
    struct monarch_tally tally;
};

/* account_free - returns the bytes of a Tier that can still be reserved. */
static inline uint64_t account_free(const struct monarch_account *a)
{
    uint64_t taken = a->used + a->reserved;
    return a->in_service && a->capacity > taken ? a->capacity - taken : 0;
}

/* footprint - returns the room that a File of this size needs in a Tier: whole Pages. */
static inline uint64_t footprint(uint64_t bytes)
{
    return bytes ? (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES : PAGE_BYTES;
}

static inline bool table_is_pool(const struct table *t, uint32_t tier)
{
    return tier == t->options.tiers;
}

/* table_yields - no program waits for a File requested with this kind: it is large, and read from
 * the origin meanwhile. */
static inline bool table_yields(const struct table *t, uint32_t file, uint32_t kind)
{
    return t->options.sizes[file] > t->options.large_bytes && !(kind & MONARCH_AWAITED);
}

/* table_row - returns the number of an Extent in all arrays per Extent. */
static inline uint64_t table_row(const struct table *t, uint32_t file, uint32_t extent)
{
    return t->options.first[file] + extent;
}

/* table_has_frame - an Extent is packed. */
static inline bool table_has_frame(const struct table *t, uint64_t row)
{
    return t->packed[row] && !(t->packed[row] & PACKED_DUE);
}

/* table_is_packed - all Extents of the File are packed. */
static inline bool table_is_packed(const struct table *t, uint32_t file)
{
    uint64_t row = t->options.first[file], end = t->options.first[file + 1];
    while (row < end && table_has_frame(t, row))
        row++;
    return row == end;
}

/* table_clear_due - notes that a small File is packed, or not to be packed any more. */
static inline void table_clear_due(struct table *t, uint32_t file)
{
    uint64_t row = table_row(t, file, 0);
    if (!(t->packed[row] & PACKED_DUE))
        return;
    t->packed[row] = 0;
    t->due_bytes -= footprint(t->options.sizes[file]);
}

/* table_set_due - notes that a small File that goes into the Pool is to be packed for a Tier. */
static inline void table_set_due(struct table *t, uint32_t file, uint32_t tier)
{
    table_clear_due(t, file);
    t->packed[table_row(t, file, 0)] = (uint8_t)(PACKED_DUE | (tier + 1));
    t->due_bytes += footprint(t->options.sizes[file]);
}

/* table_room.c; the callers hold the lock */
uint64_t table_page_ahead(const struct table *t, uint32_t tier);
uint64_t table_free_in(const struct table *t, uint32_t tier);
int table_reserve_first(struct table *t, uint64_t need);
int table_reserve_file(struct table *t, uint32_t file);
int table_reserve_packed(struct table *t, uint32_t file);
bool table_extents_packed(const struct table *t, uint32_t file);
int table_reserve_spare(struct table *t, uint64_t need);
int table_reserve_pool(struct table *t, uint64_t need, bool yields);
bool table_reserve_in(struct table *t, uint32_t tier, uint64_t need);
void table_free_room(struct table *t, uint32_t tier, uint64_t need);
int64_t table_spare_bytes(const struct table *t);
void table_set_promised(struct table *t, uint32_t file, bool promised);

struct refused { /* a File without room, and the end of its refusal */
    uint32_t file;
    uint64_t until_ns;
};

/* table_evictions.c; the callers of the first five hold the lock */
bool table_can_evict(const struct table *t, uint32_t file);
int table_evicting_pack(const struct table *t, uint32_t file);
bool table_makes_room(const struct table *t, const struct monarch_order *order,
                      uint8_t destination);
int table_large_verdict(const struct table *t, const struct monarch_order *order);
uint32_t table_absent_reason(const struct table *t, uint32_t file);
bool table_can_evict_for(struct table *t, uint32_t file);
bool table_evicts_in(struct table *t, uint32_t tier, uint32_t file, uint64_t *need);
bool table_has_free(struct table *t, uint32_t tier, uint64_t need);
void table_set_full(struct table *t, bool stays);
void table_count_evicted(struct table *t, uint32_t tier, uint64_t files,
                         uint64_t bytes);

/* table_frames.c; the caller of the first holds the lock */
void table_leave_packed(struct table *t, uint32_t tier);
int table_take_packed(struct table *t, const struct monarch_order *order,
                      const struct packed_frame *frame);
void table_give_packed(struct table *t, const struct monarch_order *order,
                       const struct packed_frame *frame);
int table_set_packed(struct table *t, const struct monarch_order *order,
                     const struct packed_frame *frame);
void table_forget_packed(struct table *t, uint32_t file, uint32_t extent);
void table_drop_packed(struct table *t, uint32_t file, uint32_t extent);
uint32_t table_evict_packed(struct table *t, uint32_t file, uint32_t extent,
                            uint32_t reason);
bool table_adopt_packed(struct table *t, const struct monarch_order *order,
                        const struct packed_frame *frame);
bool table_take_room(struct table *t, uint32_t tier, uint64_t bytes);
void table_give_room(struct table *t, uint32_t tier, uint64_t bytes);
void table_add_room(struct table *t, uint32_t tier, uint64_t bytes);
bool table_round_pack(struct table *t, uint32_t tier, bool rounds);

uint64_t table_origin_busy_ns(const struct table *t); /* the caller holds the lock */

/* table_packing.c; the callers of the first two hold the lock */
int table_crowded_tier(const struct table *t, uint32_t file);
bool table_due_fits(const struct table *t, uint64_t need);
bool table_packing_is_behind(struct table *t, uint32_t file);
bool table_packing_pays(struct table *t);
void table_count_again(struct table *t, uint32_t file);
bool table_will_be_restaged(struct table *t, uint32_t file);
bool table_is_due(struct table *t, uint32_t file);
bool table_pool_is_crowded(struct table *t);
bool table_pool_is_short(struct table *t);
int table_packing_tier(struct table *t, const struct monarch_order *order);
bool table_begin_packing(struct table *t, uint32_t file, struct monarch_order *out);
int table_extent_packing(struct table *t, uint32_t file, uint32_t extent);
int table_reserve_frame(struct table *t, uint32_t file, uint32_t extent);
void table_give_frame(struct table *t, const struct monarch_order *order);

enum { TAKE_TIER = 1, TAKE_POOL = 2 }; /* where an Extent may go */

/* table_pieces.c; the callers of the first three hold the lock */
bool table_in_pieces(const struct table *t, uint32_t file);
void table_set_pieces(struct table *t, uint32_t file, bool pieces);
int table_reserve_large(struct table *t, const struct monarch_order *order);
bool table_extent_elsewhere(struct table *t, uint32_t file, uint32_t extent);
bool table_keeps_extent(struct table *t, uint32_t file, uint32_t extent);
int table_take_extent(struct table *t, uint32_t file, uint32_t extent, unsigned where);
bool table_pool_takes(struct table *t, uint32_t file, uint32_t extent, bool packs);
void table_give_extent(struct table *t, uint32_t file, uint32_t extent, uint32_t tier);
bool table_is_in_pieces(struct table *t, uint32_t file);
int table_make_whole(struct table *t, uint32_t file, bool takes);

/* table_sources.c; the callers of the first four hold the lock */
uint32_t table_choose_source(const struct table *t,
                             const struct monarch_table_row *row);
bool table_may_fill(const struct table *t, const struct monarch_table_row *row,
                    int tried);
uint64_t table_kept_need(const struct table *t, uint32_t file);
bool table_in_part(const struct table *t, uint32_t file);
bool table_page_source(struct table *t, struct monarch_order *order);
bool table_written(const struct table *t, uint32_t file);
bool table_packs(const struct table *t, uint32_t tier, uint32_t file);
uint64_t table_extent_need(const struct table *t, uint32_t tier, uint32_t file,
                           uint32_t extent);
uint64_t table_frame_need(const struct table *t, const struct monarch_order *order);
uint64_t table_need(const struct table *t, uint32_t tier, uint32_t file);
void table_count_pages(struct table *t, uint32_t peer, uint64_t bytes);

/* table_ends.c; the callers of the first seven hold the lock */
void table_count_busy(struct table *t);
void table_count_idle(struct table *t);
void table_fail_packing(struct table *t, const struct monarch_order *order);
bool table_in_blocks(const struct table *t, const struct monarch_order *order);
void table_release(struct table *t, uint32_t tier, uint64_t need);
void table_give_up(struct table *t, const struct monarch_order *order);
void table_count_published(struct table *t, const struct monarch_order *order,
                           uint32_t fixed);
void table_busy(struct table *t, bool busy);
void table_at_origin(struct table *t, bool begins);
void table_count(struct table *t, const struct monarch_tally *more);

/* staging_table.c */
bool table_uses_pool(struct table *t);
int table_begin_partly(struct table *t, uint32_t file, struct monarch_order *out);
void table_refuse(struct table *t, uint32_t file, uint32_t reason);
void table_refuse_busy(struct table *t, struct ring *refused, uint32_t file);
void table_end_busy(struct table *t, struct ring *refused);
int table_publish(struct table *t, const struct monarch_order *order, uint32_t fixed);

#endif
