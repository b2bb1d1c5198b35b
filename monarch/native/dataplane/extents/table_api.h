/* table_api.h - the staging table, as Python creates and reads it. */
#ifndef MONARCH_TABLE_API_H
#define MONARCH_TABLE_API_H

#include <stdint.h>

#include "dataplane/base/export.h"
#include "dataplane/extents/order_api.h"

enum { SOURCES_MAX = 3, NO_SOURCE = 0xffff };

enum monarch_destination {
    DESTINATION_NOWHERE = 0, /* no node has room for it: programs read the origin */
    DESTINATION_TIER,        /* a Tier of this node, which keeps it */
    DESTINATION_SPARE,       /* a Tier, if no kept File needs the room; else the Pool */
    DESTINATION_POOL,        /* the Pool; but as SPARE if the origin must be read */
};

struct monarch_table_row { /* of an Extent; a small File has one */
    uint8_t destination;   /* enum monarch_destination */
    uint8_t reserved;
    uint16_t sources[SOURCES_MAX]; /* peers to ask, in order, then NO_SOURCE: then the
                                      origin; the first one owns the Extent */
};

struct monarch_account { /* used + reserved never exceed the capacity */
    uint64_t capacity, used, reserved;
    uint64_t in_service;
    uint64_t evicted_files, evicted_bytes; /* by recency, to make room */
};

enum { /* bits of a peer */
       PEER_USABLE = 1,
       PEER_GONE = 2, /* it reads nothing from the origin any more */
};

struct monarch_tally {           /* the work of the data plane without Python */
    uint64_t in_flight, offered; /* now */
    uint64_t demand_transfers, background_transfers;
    uint64_t staged_files, staged_bytes;
    uint64_t peer_files, peer_bytes;
    uint64_t adopted_files, adopted_bytes;
    uint64_t shared_files, shared_bytes; /* linked from other jobs of this user */
    uint64_t transit_files, transit_bytes, transit_full;
    uint64_t rehomed_files, origin_instead_files;
    uint64_t origin_read_bytes;
    uint64_t transfer_ns, busy_ns, origin_busy_ns;
    uint64_t passed_over; /* Files whose peers could not be asked by fill */
    uint64_t crowded;     /* Files without room while frames in flight hold some */
    uint64_t again;       /* Files to be packed that may be requested again */
    uint64_t hinted_files, hinted_bytes; /* Transfers that hints have begun */
    uint64_t reads_without_token;        /* of the origin, for programs */
    uint64_t packed_files, packed_bytes, stored_bytes; /* into packed Tiers */
    uint64_t raw_files; /* of these, Files that did not shrink */
    uint64_t pack_ns;
    uint64_t unpacked_files, unpacked_bytes, unpack_ns;
    uint64_t frames_dropped;                      /* damaged ones */
    uint64_t evicted_packed_files;                /* because their memory was needed */
    uint64_t came_packed_files;                   /* from peers, as frames */
    uint64_t packed_extents;                      /* of large Files */
    uint64_t compacted_segments, compacted_bytes; /* dropped; copied out of them */
};

struct monarch_fetched { /* from one peer, and correct */
    uint64_t files, bytes;
};

struct monarch_table_options { /* the arrays are borrowed until monarch_table_free() */
    const uint64_t *sizes;     /* per File */
    uint32_t *words;           /* per File: its state word */
    const uint8_t *marks;      /* per File: its *written* mark */
    const uint8_t *root_marks; /* per root */
    const uint32_t *bases;     /* per root: its first File */
    const uint64_t *first;     /* per File, and the end: its first row */
    uint64_t files;
    uint32_t roots;
    uint32_t tiers;       /* without the Pool, which has the next number */
    uint64_t large_bytes; /* programs wait for few larger Files */
};

struct monarch_plan { /* by which a table decides from now on; copied */
    const struct monarch_table_row *rows; /* per Extent */
    uint32_t own;                         /* the number of this node */
    uint32_t peers;                       /* numbers of nodes are below this */
    uint32_t uses_pool; /* 1: a File without room goes through the Pool */
    uint32_t reserved;
};

#define NO_FILE 0xffffffffu

struct monarch_pack { /* a segment of an earlier job */
    uint32_t tier, reserved;
    const char *name;
    const uint32_t *files; /* by entry of its index; NO_FILE: it is not wanted */
    uint64_t count;
};

/* The outcome of a request for a File. */
enum monarch_verdict {
    VERDICT_BEGUN = 0, /* the order is filled in, its room reserved */
    VERDICT_NOTHING,   /* it is being staged already, or refused */
    VERDICT_READY,     /* it has a Replica that a program could not open */
    VERDICT_POOL,      /* the Pool has no room for it now */
    VERDICT_PASSED,    /* fill must not begin it now */
    VERDICT_WRITTEN,   /* it was written, and a Tier has a Replica of an earlier job */
    VERDICT_WHOLE,     /* it can only be staged whole */
    VERDICT_EVICT,     /* a Tier has room for it once Replicas have been evicted */
};

struct table;

MONARCH_API int monarch_table_new(const struct monarch_table_options *options,
                                  struct table **out);
MONARCH_API void monarch_table_free(struct table *t);
MONARCH_API int monarch_table_follow(struct table *t, const struct monarch_plan *plan);
MONARCH_API void monarch_table_set_peer(struct table *t, uint32_t peer, uint32_t bits);
MONARCH_API int monarch_table_begin(struct table *t, uint32_t file, uint32_t kind,
                                    struct monarch_order *out);
MONARCH_API int monarch_table_move(struct table *t, struct monarch_order *order);
MONARCH_API int monarch_table_publish(struct table *t,
                                      const struct monarch_order *order,
                                      uint32_t source);
MONARCH_API int monarch_table_fail(struct table *t, const struct monarch_order *order,
                                   uint32_t reason, int promise);
MONARCH_API int monarch_table_offer(struct table *t, uint32_t file, uint32_t tier);
MONARCH_API int monarch_table_withdraw(struct table *t, uint32_t file);
MONARCH_API void monarch_table_offers(struct table *t, uint8_t *out);
MONARCH_API void monarch_table_remove(struct table *t, uint32_t file, uint32_t tier);
MONARCH_API void monarch_table_set_capacity(struct table *t, uint32_t tier,
                                            uint64_t bytes);
MONARCH_API void monarch_table_shrink(struct table *t, uint32_t tier);
MONARCH_API int monarch_table_retire(struct table *t, uint32_t tier);
MONARCH_API void monarch_table_account(struct table *t, uint32_t tier,
                                       struct monarch_account *out);
MONARCH_API void monarch_table_fetched(struct table *t, uint32_t peer,
                                       struct monarch_fetched *out);
MONARCH_API int64_t monarch_table_spare(struct table *t);
MONARCH_API void monarch_table_pack(struct table *t, uint32_t tier, uint32_t ratio,
                                    uint32_t last_pages);
MONARCH_API void monarch_table_packed(struct table *t, uint8_t *out);
MONARCH_API void monarch_table_evict(struct table *t, uint32_t tier);
MONARCH_API void monarch_table_stop(struct table *t);
MONARCH_API void monarch_table_tally(struct table *t, struct monarch_tally *out);

#endif
