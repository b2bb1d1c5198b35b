/* partial.h - partial Replicas: large Files of which some Blocks are there. */
#ifndef MONARCH_PARTIAL_H
#define MONARCH_PARTIAL_H

#include "dataplane/transfer.h"
#include "shared/presence.h"

enum { RUNS_MAX = 512 }; /* of Blocks, for one request */

struct block_run { /* of Blocks, within one Extent */
    uint32_t first, count;
};

struct partial {
    uint32_t large; /* its number among the large Files */
    uint32_t blocks, extents;
    struct part *part;       /* what programs see of it */
    _Atomic uint32_t *words; /* Blocks that are there */
    pthread_mutex_t
        opening;        /* held while its files are opened; before the lock of all */
    int source, target; /* or -1; kept while a Transfer uses them */
    uint64_t ino;       /* of the target, once it was created */
    /* guarded by the lock of all partial Replicas */
    struct monarch_order order; /* by which its room is reserved */
    uint32_t users;             /* Transfers */
    uint32_t present;           /* Blocks */
    uint32_t finished;          /* Extents that have their checksum */
    bool completing;            /* a Transfer copies all that it lacks */
    bool condemned;             /* an order will find out that it was written */
    bool ended;                 /* published or failed: it is not used any more */
    int status;                 /* of that */
    uint32_t *claimed;          /* Blocks that are being copied, as `words` */
    uint64_t *digests;          /* of each Block that is there */
    char name[REPLICA_NAME_BYTES + 1];
};

struct partials {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* some Block came, or a partial Replica ended */
    struct partial **all;   /* by the number among the large Files; NULL: none */
    uint32_t count;
    uint32_t open; /* those with open files */
    uint32_t serial;
    _Atomic uint32_t incomplete; /* those that no Transfer completes */
};

/* partial.c */
int partials_new(struct engine *e, struct partials **out);
void partials_free(struct engine *e);
bool partial_applies(const struct engine *e, const struct monarch_order *order);
bool partial_add(struct engine *e, const struct monarch_order *order);
int partial_enter(struct engine *e, const struct monarch_order *order,
                  struct partial **out);
void partial_opened(struct engine *e, struct partial *p, int source, int target);
void partial_leave(struct engine *e, struct partial *p, bool completes);
bool partial_end(struct engine *e, struct partial *p, int status);
bool partial_ended(struct engine *e, struct partial *p, int *status);
bool partials_incomplete(const struct engine *e);
bool partial_next_incomplete(struct engine *e, struct monarch_order *out);
bool partial_lacks(const struct engine *e, uint32_t file);
bool partial_order_rest(struct engine *e, uint32_t file, struct monarch_order *out);
uint32_t partials_check(struct engine *e, struct monarch_order *out, uint32_t max);

/* block_claims.c */
uint32_t partial_claim_runs(struct engine *e, struct block_range range,
                            struct monarch_order *order, struct block_run *runs);
struct block_run partial_claim_next(struct engine *e, struct partial *p, uint32_t from,
                                    uint32_t max);
void partial_unclaim(struct engine *e, struct partial *p, struct block_run run,
                     bool failed);
void partial_release_run(struct engine *e, uint32_t large, struct block_run run);
bool partial_set(struct engine *e, struct partial *p, struct block_run run,
                 const uint64_t *digests);
bool partial_extent_finished(struct engine *e, struct partial *p);
bool partial_await(struct engine *e, struct partial *p);

/* blocks.c */
bool blocks_run(struct engine *e, struct transfer *t, uint8_t *buffer);

/* block_requests.c */
void blocks_requested(struct engine *e, uint64_t request);
void blocks_check(struct engine *e);

#endif
