/* packs_state.h - the state of pack files, for the files that add, adopt, drop and compact them. */
#ifndef MONARCH_PACKS_STATE_H
#define MONARCH_PACKS_STATE_H

#include <pthread.h>

#include "dataplane/base/ring.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/packs.h"
#include "dataplane/media/pack_room.h"
#include "shared/layout.h"

enum { RULES_MAX = 16 };

struct spare_coder {
    struct spare_coder *next;
    struct coder *coder;
};

struct packed_codec {
    bool given;
    uint32_t id;
    struct monarch_packing packing;
    struct spare_coder *spare;
};

struct packed_tier {
    struct packed_codec codecs[RULES_MAX]; /* by rule; of a packed Tier only */
    uint32_t segment; /* the one that is appended to, plus 1; 0: none */
};

struct packs {
    const struct job *job;
    struct table *table;
    pthread_mutex_t lock; /* guards the rest; before that of the table */
    struct packed_tier tiers[TIERS_MAX];
    struct pack_segment *segments;
    uint32_t segment_count;
    uint32_t name;              /* of the next new segment */
    struct frame_place *places; /* per row of the staging table */
    uint64_t **digests;         /* per row: of Blocks of an earlier job, or NULL */
    struct ring waiting;        /* struct to_pack */
    uint32_t waiting_extents;   /* of these, Extents of large Files */
    bool blocked;               /* packing waits for evictions from a Tier */
    uint32_t blocked_by;        /* a File that waits */
};

uint64_t packs_empty(struct packs *p, uint32_t number);

#endif
