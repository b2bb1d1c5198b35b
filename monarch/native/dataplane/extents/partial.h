/* partial.h - partial Replicas: large Files of which some Blocks are there. */
#ifndef MONARCH_PARTIAL_H
#define MONARCH_PARTIAL_H

#include "dataplane/base/ring.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/order.h"
#include "shared/presence.h"

struct packs;
struct table;

enum {
    RUNS_MAX = 512, /* of Blocks, for one request */
    HELD_MAX = CHUNK_BYTES / BLOCK_BYTES,
};

/* monarch_order.tried of Blocks that a peer has given: their Extent is to be completed. */
#define BLOCKS_HAVE_COME 0xff

struct part_file { /* that is sparse, in one Tier */
    int fd;        /* or -1 */
    uint64_t ino;  /* once it was created */
};

struct pooled_extent { /* that has a file of its own in the Pool */
    uint32_t large, extent;
};

struct partial {
    uint32_t large; /* its number among the large Files */
    uint32_t blocks, extents;
    struct part *part;       /* what programs see of it */
    _Atomic uint32_t *words; /* Blocks that are there */
    _Atomic uint8_t *places; /* of Extents, see PLACE_NONE */
    pthread_mutex_t
        opening;      /* held while its files are opened; before the lock of all */
    bool pieces;      /* its Extents have room one by one */
    bool gathers;     /* it was in pieces, and will be whole: see partial_whole.c */
    int source;       /* or -1; kept while a Transfer uses it */
    bool drops_pages; /* of the source; known before it is read */
    struct part_file files[TIERS_MAX];
    atomic_bool from_origin; /* some Blocks have come from there */
    atomic_bool asks_plain;  /* a peer has sent a damaged frame: it is to decode them */
    /* guarded by the lock of all partial Replicas */
    struct monarch_order order; /* by which its room is reserved */
    uint32_t users;             /* Transfers */
    uint32_t present;           /* Blocks */
    uint32_t claims;            /* Blocks that are being copied or fetched */
    uint32_t finished;          /* Extents that have their checksum */
    bool finish_later;          /* some complete Extents have none yet */
    bool completing;            /* a Transfer copies all that it lacks */
    bool postponed;             /* what it lacks cannot be copied just now */
    bool abandoned;             /* fill has given it up: peers do not give it */
    bool condemned;             /* an order will find out that it was written */
    bool ended;                 /* published or failed: it is not used any more */
    int status;                 /* of that */
    uint32_t *claimed;          /* Blocks that are being copied, as `words` */
    uint32_t *unasked;          /* of these, those that fill waits for */
    uint8_t *has_checksum;      /* per Extent */
    uint8_t *stays_plain;       /* the same: it could not be packed */
    uint64_t *digests;          /* of each Block that is there */
    char name[REPLICA_NAME_BYTES + 1];
};

/* partial_place - where an Extent is. */
static inline uint8_t partial_place(const struct partial *p, uint32_t extent)
{
    return atomic_load_explicit(&p->places[extent], memory_order_acquire);
}

static inline void partial_set_place(struct partial *p, uint32_t extent, uint8_t place)
{
    atomic_store_explicit(&p->places[extent], place, memory_order_release);
}

/* partial_extent_blocks - the Blocks of an Extent. */
static inline struct block_run partial_extent_blocks(const struct partial *p,
                                                     uint32_t extent)
{
    uint32_t first = extent * EXTENT_BLOCKS, left = p->blocks - first;
    return (struct block_run){first, left < EXTENT_BLOCKS ? left : EXTENT_BLOCKS};
}

struct block_claims {           /* of one range */
    struct monarch_order order; /* by which the File is staged */
    uint32_t count;
    struct block_run runs[RUNS_MAX];
    bool of_fill; /* fill had claimed others, for which no program waited before */
};

struct digests { /* of the Blocks of a Replica that was complete */
    uint64_t *blocks;
    uint32_t word; /* its generation */
};

struct stage { /* of a partial Replica, as Transfers have it */
    bool completing, postponed, ended, abandoned;
};

struct partials {
    struct job *job;
    struct table *table;
    struct packs *packs; /* NULL: no Tier is packed */
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* some Block came, or a partial Replica ended */
    struct partial **all;    /* by the number among the large Files; NULL: none */
    struct digests *digests; /* of READY Replicas, by the same number */
    uint32_t count;          /* of large Files; 0: all Files are staged whole */
    uint32_t open;           /* files of them */
    uint32_t serial;
    _Atomic uint32_t incomplete; /* those that a Transfer should complete */
    _Atomic uint32_t begun;      /* of these, those that fill has begun */
    _Atomic uint32_t unended;    /* those that are there */
    _Atomic uint32_t abandoned;  /* of these, those that fill has given up */
    struct ring pooled;          /* struct pooled_extent, the oldest first */
    struct ring refused; /* the same, of Extents that programs wait for without room */
    struct ring to_pack; /* the same, of complete ones */
    _Atomic uint32_t to_pack_count;
    struct ring handed; /* struct monarch_order: of Blocks, see partial_hand() */
};

struct held { /* Blocks of a Replica that are there, for another node */
    uint32_t word, tier, pieces;
    uint64_t part;   /* 0: it is READY */
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
void partial_finish_later(struct partials *parts, uint32_t file);
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
void partial_wake(struct partials *parts, struct partial *p, uint32_t block);
bool partials_incomplete(const struct partials *parts);
bool partials_begun(const struct partials *parts);
uint32_t partials_to_complete(const struct partials *parts);
void partials_retry(struct partials *parts);
bool partial_next_incomplete(struct partials *parts, bool begun,
                             struct monarch_order *out);
bool partial_lacks(struct partials *parts, uint32_t file);
bool partial_is_to_be_whole(struct partials *parts, uint32_t file);
void partial_reconsider(struct partials *parts, struct partial *p);
bool partial_order_rest(struct partials *parts, uint32_t file,
                        struct monarch_order *out);

/* block_serving.c */
bool partial_hold(struct partials *parts, uint32_t file, struct block_run run,
                  struct held *out);
bool partial_digests(struct partials *parts, uint32_t file, struct block_run run,
                     uint64_t *out);
bool partial_held_still(struct job *job, uint32_t file, const struct held *held);
void partial_note_adopted(struct partials *parts, const struct monarch_order *order,
                          const uint8_t *bytes, size_t n, uint64_t offset);
uint32_t partial_failures(const struct job *job, uint32_t file);
void blocks_digest(const uint8_t *bytes, size_t n, uint64_t *out);
bool blocks_same(const struct partial *p, uint32_t first, const uint8_t *bytes,
                 size_t n);
struct block_run blocks_next_run(struct block_run all, uint32_t *bits, uint32_t most);

/* block_claims.c */
void partial_claim_runs(struct partials *parts, struct block_range range, bool unasked,
                        struct block_claims *out);
struct block_run partial_claim_next(struct partials *parts, struct partial *p,
                                    uint32_t from, uint32_t max, bool unasked);
bool partial_take_unasked(struct partials *parts, struct partial *p, uint32_t *extent);
bool partial_asked_since(struct partials *parts, uint32_t large, struct block_run run);
struct block_run partial_find_next(struct partials *parts, struct partial *p,
                                   uint32_t from);
uint32_t partial_still_claimed(struct partials *parts, struct partial *p,
                               struct block_run run, struct block_run *out);
void partial_unclaim(struct partials *parts, struct partial *p, struct block_run run,
                     bool failed);
void partial_release_run(struct partials *parts, uint32_t large, struct block_run run);
bool partial_set(struct partials *parts, struct partial *p, struct block_run run,
                 const uint64_t *digests);
bool partial_extent_finished(struct partials *parts, struct partial *p,
                             uint32_t extent);
bool partial_unfinished(struct partial *p, uint32_t *extent);
bool partial_hand(struct partials *parts, const struct monarch_order *order);
void partial_hand_complete(struct partials *parts, const struct monarch_order *from,
                           uint32_t extent);
bool partial_take_handed(struct partials *parts, struct monarch_order *out);
bool partial_await(struct partials *parts, struct partial *p);

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
