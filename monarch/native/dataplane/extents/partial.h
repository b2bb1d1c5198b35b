/* partial.h - partial Replicas: large Files of which some Pages are present. */
#ifndef MONARCH_PARTIAL_H
#define MONARCH_PARTIAL_H

#include "dataplane/base/ring.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/order.h"
#include "shared/presence.h"

struct packs;
struct table;

enum {
    RUNS_MAX = 512, /* of Pages, for one request */
    HELD_MAX = CHUNK_BYTES / BLOCK_BYTES,
    READ_BESIDE_PARTS = 4, /* extra Pages: at most a fourth of the requested */
};

/* monarch_order.tried: all Pages of the Extent are present, and it has to be completed. */
#define PAGES_PRESENT 0xff

struct part_file { /* the sparse file in one Tier */
    int fd;        /* or -1 */
    uint64_t ino;  /* 0 until it is created */
};

struct pooled_extent { /* an Extent with a file of its own in the Pool */
    uint32_t large, extent;
};

struct extent {                /* of a partial Replica, in the agent */
    uint16_t present, claimed; /* Pages */
    uint16_t asked;            /* Pages requested by programs while missing */
    uint16_t extra;            /* Pages read beside those */
    uint16_t removals; /* of its files: Pages written to a removed one are lost */
    uint32_t digested; /* one bit per Block: its checksum is known */
    bool has_checksum; /* of the whole Extent */
    bool stays_plain;  /* it could not be packed */
};

struct partial {
    uint32_t large; /* its number among the large Files */
    uint32_t pages, extents;
    struct part *part;         /* its state as programs see it */
    _Atomic uint64_t *words;   /* per Block: Pages that are present */
    _Atomic uint32_t *changes; /* per Extent: a futex */
    _Atomic uint8_t *places;   /* per Extent, see PLACE_NONE */
    pthread_mutex_t opening;   /* held to open files; taken before the lock of all */
    bool pieces;               /* its Extents reserve room one by one */
    bool gathers;     /* it was in pieces, and will be whole: see partial_whole.c */
    int source;       /* descriptor or -1; kept while a Transfer uses it */
    bool drops_pages; /* of the source; known before it is read */
    struct part_file files[TIERS_MAX];
    atomic_bool from_origin; /* some Pages have arrived from the origin */
    atomic_bool asks_plain; /* a peer has sent a damaged frame: request decoded bytes */
    /* guarded by the lock of all partial Replicas */
    struct monarch_order order; /* by which its room is reserved */
    uint32_t users;             /* Transfers */
    uint32_t present;           /* Pages */
    uint32_t claims;            /* Pages that are being copied or fetched */
    uint32_t finished;          /* Extents that have their checksum */
    bool finish_later;          /* some complete Extents have none yet */
    bool completing;            /* a Transfer copies all missing Pages */
    bool postponed;             /* missing Pages cannot be copied just now */
    bool abandoned;             /* fill has given it up: no peer has the rest */
    bool condemned;             /* an order will find that its File was written */
    bool ended;                 /* published or failed: it is not used any more */
    int status;                 /* of its end */
    struct extent *each;
    uint64_t *claimed; /* per Block: Pages that are being copied */
    uint64_t *unasked; /* of these, Pages that only fill waits for */
    /* Per Block: its checksum; until that is known, the sum of the checksums of present Pages. */
    uint64_t *digests;
    char name[REPLICA_NAME_BYTES + 1];
};

/* partial_place - returns the place of an Extent. */
static inline uint8_t partial_place(const struct partial *p, uint32_t extent)
{
    return atomic_load_explicit(&p->places[extent], memory_order_acquire);
}

static inline void partial_set_place(struct partial *p, uint32_t extent, uint8_t place)
{
    atomic_store_explicit(&p->places[extent], place, memory_order_release);
}

/* partial_extent_pages - returns the Pages of an Extent. */
static inline struct page_run partial_extent_pages(const struct partial *p,
                                                   uint32_t extent)
{
    uint32_t first = extent * EXTENT_PAGES, left = p->pages - first;
    return (struct page_run){first, left < EXTENT_PAGES ? left : EXTENT_PAGES};
}

/* pages_blocks - returns the Blocks that contain some Pages. */
static inline struct block_run pages_blocks(struct page_run run)
{
    uint32_t first = run.first / BLOCK_PAGES;
    uint32_t end = (run.first + run.count + BLOCK_PAGES - 1) / BLOCK_PAGES;
    return (struct block_run){first, end - first};
}

/* blocks_pages - returns the Pages of some Blocks. */
static inline struct page_run blocks_pages(const struct partial *p,
                                           struct block_run run)
{
    uint32_t first = run.first * BLOCK_PAGES, left = p->pages - first;
    uint32_t count = run.count * BLOCK_PAGES;
    return (struct page_run){first, count < left ? count : left};
}

/* blocks_mask - returns the bits of `count` Blocks from `first` on in the word of their Extent. */
static inline uint32_t blocks_mask(uint32_t first, uint32_t count)
{
    uint32_t bits = count >= EXTENT_BLOCKS ? ~0u : (1u << count) - 1;
    return bits << first % EXTENT_BLOCKS;
}

struct page_claims {            /* of one range */
    struct monarch_order order; /* by which the File is staged */
    uint32_t count, asked;      /* runs; programs wait for the first `asked` of these */
    struct page_run runs[RUNS_MAX];
    bool of_fill; /* fill had claimed other Pages, for which no program waited */
};

struct claiming {     /* how to claim Pages */
    bool unasked;     /* no program waits for them */
    bool blocks;      /* whole Blocks, as a peer sends them */
    uint32_t widest;  /* Pages, a power of two: how far a request may be widened */
    uint32_t through; /* present Pages that may be read again between missing ones */
};

struct arrival {    /* the result of partial_arrived() */
    uint64_t bytes; /* that were missing before */
    bool complete;  /* the Extent is, and its File will be READY */
    uint32_t undigested_count;
    uint32_t undigested[2]; /* Blocks that are now whole and need checksums */
};

struct digests { /* of the Blocks of a Replica that was complete */
    uint64_t *blocks;
    uint32_t word; /* its generation */
};

struct stage { /* of a partial Replica, set by Transfers */
    bool completing, postponed, ended, abandoned;
};

struct partials {
    struct job *job;
    struct table *table;
    struct packs *packs; /* NULL: no Tier is packed */
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* a Page arrived, or a partial Replica ended */
    struct partial **all;    /* by the number among the large Files; NULL: none */
    struct digests *digests; /* of READY Replicas, by the same number */
    uint32_t count;          /* of large Files; 0: all Files are staged whole */
    uint32_t open;           /* open files */
    uint32_t serial;
    uint32_t fetch_large, fetch_extent; /* next Extent for partial_next_fetch() */
    _Atomic uint32_t incomplete;        /* Replicas that a Transfer should complete */
    _Atomic uint32_t begun;             /* of these, begun by fill */
    _Atomic uint32_t unended;           /* Replicas that have not ended */
    _Atomic uint32_t abandoned;         /* of these, given up by fill */
    struct ring pooled;                 /* struct pooled_extent, the oldest first */
    struct ring refused; /* the same: Extents without room that programs wait for */
    struct ring handed;  /* struct monarch_order: of Pages, see partial_hand() */
};

enum { FETCHED_PAGES_MAX = 2 * EXTENT_PAGES }; /* of one File at once, from peers */

struct held { /* present Blocks of a Replica, for another node */
    uint32_t word, tier, pieces;
    uint64_t part;   /* 0: the Replica is READY */
    uint64_t offset; /* of the first one in its file */
    bool checked;    /* the digests are known */
    uint64_t digests[HELD_MAX];
    char name[EXTENT_NAME_BYTES + 1];
};

/* partial_life.c */
int partials_new(struct job *job, struct table *table, struct packs *packs,
                 struct partials **out);
void partials_free(struct partials *parts);
uint64_t partials_drop(struct partials *parts, uint32_t tier, uint64_t bytes,
                       uint32_t reason);
bool partial_applies(const struct partials *parts, const struct monarch_order *order);
bool partial_add(struct partials *parts, const struct monarch_order *order);
void partial_expect(struct partials *parts, const struct monarch_order *order);
int partial_enter(struct partials *parts, const struct monarch_order *order,
                  struct partial **out);
void partial_opened(struct partials *parts, int *at, int fd);
void partial_damaged(struct partials *parts, uint32_t file, const struct held *held);
void partial_leave(struct partials *parts, struct partial *p, bool completes);
bool partial_end(struct partials *parts, struct partial *p, int status);
bool partial_ended(struct partials *parts, struct partial *p, int *status);
uint32_t partials_check(struct partials *parts, struct monarch_order *out,
                        uint32_t max);

/* partial_rest.c; the callers of the first three hold the lock */
void partial_set_stage(struct partials *all, struct partial *p, struct stage now);
void partial_count_new(struct partials *all, const struct partial *p);
void partial_clear_postponed(struct partials *all, struct partial *p);
void partial_abandon(struct partials *parts, struct partial *p);
void partial_postpone(struct partials *parts, struct partial *p);
void partial_resume(struct partials *parts, uint32_t file);
void partial_wake(struct partials *parts, struct partial *p, uint32_t extent);
bool partials_incomplete(const struct partials *parts);
bool partials_begun(const struct partials *parts);
uint32_t partials_to_complete(const struct partials *parts);
void partials_retry(struct partials *parts);
bool partial_next_incomplete(struct partials *parts, bool begun,
                             struct monarch_order *out);
bool partial_lacks(struct partials *parts, uint32_t file);
bool partial_wants_whole(struct partials *parts, uint32_t file);
void partial_reconsider(struct partials *parts, struct partial *p);
void partial_end_linked(struct partials *parts, struct partial *p);
bool partial_next_fetch(struct partials *parts, struct monarch_order *out);
bool partial_order_rest(struct partials *parts, uint32_t file,
                        struct monarch_order *out);

/* block_serving.c */
bool partial_hold(struct partials *parts, uint32_t file, struct block_run run,
                  struct held *out);
bool partial_digests(struct partials *parts, uint32_t file, struct block_run run,
                     uint64_t *out);
bool partial_is_held(struct job *job, uint32_t file, const struct held *held);
void partial_note_adopted(struct partials *parts, const struct monarch_order *order,
                          const uint8_t *bytes, size_t n, uint64_t offset);
uint32_t partial_failures(const struct job *job, uint32_t file);
void blocks_digest(const uint8_t *bytes, size_t n, uint64_t *out);
bool blocks_same(const struct partial *p, uint32_t first, const uint8_t *bytes,
                 size_t n);
struct block_run blocks_next_run(struct block_run all, uint32_t *bits, uint32_t most);

/* page_claims.c */
void partial_claim_range(struct partials *parts, struct page_range range,
                         const struct claiming *how, struct page_claims *out);
struct page_run partial_claim_next(struct partials *parts, struct partial *p,
                                   struct page_run within, const struct claiming *how,
                                   bool *roomless);
bool partial_take_unasked(struct partials *parts, struct partial *p, uint32_t *extent);
bool partial_asked_since(struct partials *parts, uint32_t large, struct page_run run);
uint32_t partial_find_next(struct partials *parts, struct partial *p, uint32_t from);
uint32_t partial_still_claimed(struct partials *parts, struct partial *p,
                               struct page_run run, struct page_run *out);
void partial_unclaim(struct partials *parts, struct partial *p, struct page_run run,
                     bool failed);
bool partial_is_untouched(struct partials *parts, struct partial *p,
                          struct page_run own);
bool partial_claim_whole(struct partials *parts, struct partial *p,
                         struct page_run own);
void partial_unclaim_whole(struct partials *parts, struct partial *p,
                           struct page_run own);
void partial_release(struct partials *parts, const struct monarch_order *order);
bool partial_await(struct partials *parts, struct partial *p);

/* page_bits.c; the callers hold the lock */
uint32_t pages_next_free(const struct partial *p, uint32_t at, uint32_t end);
uint32_t pages_count_free(const struct partial *p, struct page_run run);
struct page_run pages_free_run(const struct partial *p, struct page_run within,
                               const struct claiming *how);
void pages_claim(struct partial *p, struct page_run run);
void pages_claim_all(struct partial *p, uint32_t extent);
void pages_unclaim(struct partial *p, struct page_run run);
void pages_set_unasked(struct partial *p, struct page_run run);
bool pages_take_unasked(struct partial *p, struct page_run range);
bool partial_is_whole(const struct partial *p, uint32_t extent);

/* page_arrivals.c */
uint16_t partial_removals(struct partials *parts, struct partial *p, uint32_t extent);
struct arrival partial_arrived(struct partials *parts, struct partial *p,
                               struct page_run run, const uint8_t *bytes,
                               uint16_t removals);
bool partial_arrived_again(struct partials *parts, struct partial *p,
                           struct page_run run, uint16_t removals);
int partial_digested(struct partials *parts, struct partial *p, uint32_t block,
                     const uint8_t *bytes, size_t n);
bool partial_extent_finished(struct partials *parts, struct partial *p,
                             uint32_t extent);
bool partial_unfinished(struct partial *p, uint32_t *extent);
bool partial_hand(struct partials *parts, const struct monarch_order *order);
void partial_hand_complete(struct partials *parts, const struct monarch_order *from,
                           uint32_t extent);
bool partial_take_handed(struct partials *parts, struct monarch_order *out);
void partial_finish_later(struct partials *parts, uint32_t file);

/* partial_places.c; the callers hold the lock */
bool partial_has_place(struct partials *parts, struct partial *p, uint32_t extent,
                       bool fill);
void partial_set_places(struct partials *parts, struct partial *p);
void partial_leave_places(struct partials *parts, struct partial *p);
void partial_yield_pool(struct partials *parts);
void partial_give_up_extent(struct partials *parts, struct partial *p, uint32_t extent);
uint32_t partial_hide_extent(struct partial *p, uint32_t extent);
void partial_remove_extent(struct partials *parts, const struct partial *p,
                           uint32_t extent, uint32_t tier);

#endif
