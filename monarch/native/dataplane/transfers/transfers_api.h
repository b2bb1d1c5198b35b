/* transfers_api.h - the settings of Transfers, and their results for Python. */
#ifndef MONARCH_TRANSFERS_API_H
#define MONARCH_TRANSFERS_API_H

#include <stdint.h>

#include "dataplane/extents/packs.h"
#include "dataplane/media/seal.h"

struct monarch_options {
    uint32_t threads;
    uint32_t background_max; /* what monarch_engine_set_background() may permit */
    uint64_t bandwidth_bytes_per_s; /* of background copies; 0 = unlimited */
    uint64_t *digests;              /* one per Extent of every File; borrowed */
    const uint64_t *digest_first;   /* per File: its first digest; borrowed */
    const uint8_t *seal_key;    /* SEAL_KEY_BYTES, copied; NULL: no seals are made */
    struct monarch_seal *seals; /* one per Extent, as the digests; borrowed */
    uint32_t seals_only;        /* 1: no checksums are computed */
    uint32_t background_first;  /* running background Transfers at first */
    uint32_t readers_max;       /* of the origin at once, at first; 0: no limit */
    uint32_t retains;           /* 1: segments get an index when the engine ends */
    uint32_t shares_memory;     /* 1: Replicas of other jobs in RAM are linked, too */
    uint32_t alone;             /* 1: no other node is in the job, now or later */
    struct table *table;        /* borrowed; NULL: Python orders every Transfer */
    const struct monarch_packing *packings; /* borrowed */
    uint64_t packing_count;
};

/* The origins that do not answer, and the Transfers that hang in system calls. */
struct monarch_health {
    uint64_t stalled;      /* a bit per root: no Transfer makes progress */
    uint32_t stuck_demand; /* Transfers that may never end, by class */
    uint32_t stuck_background;
};

/* Tokens to read the origin: how many are in use now, and how many were wanted at once
 * since the last call. */
struct monarch_readers {
    uint32_t reading;
    uint32_t demand, background;
    uint32_t lacking; /* 1: background Transfers would begin with more tokens */
};

enum { SLOWEST_MAX = 10 }; /* the slowest copies that an engine remembers */

/* Reads of the origin since the engine began. A read is a copy of a File, or one step (a chunk)
 * of a background copy. */
enum {
    PACE_FILES, /* successful copies */
    PACE_READS,
    PACE_BYTES,
    PACE_NS,      /* the sum of the durations of reads */
    PACE_FILL_NS, /* that of background copies among them */
    PACE_STALE,   /* reads that began under another limit of background copies */
    PACE_COUNT,
};

struct monarch_completion { /* of an order that has failed or is to be reported */
    uint32_t file;
    uint16_t tier;
    uint8_t kind, step;
    uint32_t peer;
    uint32_t word;
    int32_t status;   /* 0: READY is published; -ESTALE: the origin differs from the
                         Catalog; -EBADMSG: the copy is wrong; at MONARCH_STEP_READ of a
                         peer the status of its reply, or the error of the connection;
                         else -errno */
    uint32_t expired; /* 1: Python was silent; the File is already absent and busy */
    uint32_t pages;   /* the number of its Pages; 0: the whole File */
    uint32_t alone;   /* 1: it concerns the Tier, or Pages that others copy now; the
                         Transfer of the File continues */
    uint64_t bytes;   /* read from the origin or received, also by a failed Transfer */
    uint64_t ns;      /* running time, without the time in which it was parked */
    uint64_t ended_ns;
};

#endif
