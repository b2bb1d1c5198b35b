/* api.h - the interface of libmonarch.so for Python: the shared layouts as a text,
 * functions of shared/, the engine that copies Files, and its peer server and receiver.
 *
 * Functions return 0 or -errno unless their comment says otherwise. None takes the GIL.
 */
#ifndef MONARCH_API_H
#define MONARCH_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MONARCH_API __attribute__((visibility("default")))
#endif

/* ---- layouts and look-ups ------------------------------------------------------- */

MONARCH_API const char *monarch_layout(void);
MONARCH_API uint64_t monarch_hash(const void *bytes, size_t n, uint64_t seed);
MONARCH_API uint64_t monarch_wait_bucket_ns(uint32_t bucket);
MONARCH_API int monarch_index_finish(void *block, size_t length);
MONARCH_API int monarch_index_check(const void *block, size_t length);
MONARCH_API int monarch_home_choose(const char *base, int make, char *out);
MONARCH_API int monarch_home_list(const char *base, char *out);
MONARCH_API int64_t monarch_index_find(const void *block, const char *rel, size_t n);
MONARCH_API int monarch_inodes_unstable(const char *directory);
MONARCH_API int64_t monarch_index_find_inode(const void *block, uint64_t dev,
                                             uint64_t ino);
MONARCH_API void monarch_replica_name(const void *block, uint64_t root_hash,
                                      uint32_t entry, char out[32]);

/* ---- words that other processes wait for ----------------------------------------- */

MONARCH_API void monarch_state_store(void *catalog, uint32_t file, uint32_t word);
MONARCH_API void monarch_marks_set(uint8_t *marks, const uint64_t *numbers,
                                   const uint8_t *bits, size_t n);
MONARCH_API void monarch_agent_state_store(void *requests, uint32_t state);
MONARCH_API void monarch_beat(void *requests);

/* ---- rights and mounts of this process -------------------------------------------- */

MONARCH_API void monarch_rights_read(void *rights);
MONARCH_API uint32_t monarch_rights_mark(void);
MONARCH_API int monarch_mounts_cover(const void *block, const char *directory,
                                     size_t n);

/* ---- seals ------------------------------------------------------------------------ */

enum { SEAL_KEY_BYTES = 32, SEAL_NONCE_BYTES = 12, SEAL_TAG_BYTES = 16 };

struct monarch_seal { /* of an Extent: a MAC with the key of the job */
    uint8_t nonce[SEAL_NONCE_BYTES], tag[SEAL_TAG_BYTES];
};

MONARCH_API const char *monarch_seal_library(void);

/* ---- engine ----------------------------------------------------------------------- */

/* Bit 0: background; bit 1: verify an existing Replica instead of copying. */
enum monarch_kind {
    MONARCH_DEMAND = 0,
    MONARCH_BACKGROUND = 1,
    MONARCH_ADOPT = 2,
    MONARCH_ADOPT_BACKGROUND = 3,
};

/* The step in which a Transfer ended. */
enum monarch_step {
    MONARCH_STEP_ORDER = 0, /* checking the order itself */
    MONARCH_STEP_OPEN,      /* opening the origin, or the Replica to adopt */
    MONARCH_STEP_STAT,      /* comparing the origin with the Catalog, before or after */
    MONARCH_STEP_READ,
    MONARCH_STEP_CREATE,  /* creating the temporary file in the Tier */
    MONARCH_STEP_WRITE,   /* writing it */
    MONARCH_STEP_VERIFY,  /* comparing the copy with what was read */
    MONARCH_STEP_PUBLISH, /* inode table, name, state */
};

struct monarch_segments { /* mapped; borrowed until monarch_engine_free() */
    void *catalog, *flags, *requests, *inodes;
};

struct monarch_options {
    uint32_t threads;
    uint32_t background_max;        /* running background Transfers */
    uint64_t bandwidth_bytes_per_s; /* of background copies; 0 = unlimited */
    uint64_t *digests;              /* one per Extent of every File; borrowed */
    const uint64_t *digest_first;   /* per File: its first digest; borrowed */
    const uint8_t *seal_key;    /* SEAL_KEY_BYTES, copied; NULL: no seals are made */
    struct monarch_seal *seals; /* one per Extent, as the digests; borrowed */
    uint32_t seals_only;        /* 1: no checksums are computed */
    uint32_t reserved;
};

/* Which origins do not answer, and how many Transfers hang in system calls. */
struct monarch_health {
    uint64_t stalled;      /* a bit per root: no Transfer makes progress */
    uint32_t stuck_demand; /* Transfers that may never end, by class */
    uint32_t stuck_background;
};

struct monarch_order {
    uint32_t file;
    uint16_t tier;
    uint8_t kind; /* enum monarch_kind */
    uint8_t reserved;
};

struct monarch_completion {
    uint32_t file;
    uint16_t tier;
    uint8_t kind, step;
    int32_t status; /* 0: READY is published; -ESTALE: the origin differs from the
                       Catalog; -EBADMSG: the copy is wrong; else -errno */
    uint32_t reserved;
    uint64_t bytes; /* read from the origin, also by a failed Transfer */
    uint64_t ns;    /* running time, without the time in which it was parked */
};

struct engine;

MONARCH_API int monarch_engine_new(const struct monarch_segments *segments,
                                   const struct monarch_options *options,
                                   struct engine **out);
MONARCH_API int monarch_engine_event_fd(const struct engine *e);
MONARCH_API uint32_t monarch_engine_requests(struct engine *e, uint32_t *files,
                                             uint32_t max);
MONARCH_API uint32_t monarch_engine_submit(struct engine *e,
                                           const struct monarch_order *orders,
                                           uint32_t n);
MONARCH_API uint32_t monarch_engine_completions(struct engine *e,
                                                struct monarch_completion *out,
                                                uint32_t max);
MONARCH_API void monarch_engine_health(struct engine *e, struct monarch_health *out);
MONARCH_API void monarch_engine_forget(struct engine *e, uint32_t tier, uint64_t ino);
MONARCH_API void monarch_engine_keep(struct engine *e, uint32_t tier, uint64_t ino);
MONARCH_API int monarch_engine_free(struct engine *e, uint32_t timeout_ms);

/* ---- peers ------------------------------------------------------------------------ */

/* Counts of one peer; a count that only one side has is 0 at the other. */
struct monarch_traffic {
    uint64_t connections; /* open now */
    uint64_t requests;    /* received by a server, sent by a receiver */
    uint64_t replies;     /* with bytes */
    uint64_t bytes;       /* of Files */
    uint64_t refused;     /* replies without bytes */
    uint64_t late;    /* server: -EAGAIN among these; receiver: orders that timed out */
    uint64_t corrupt; /* receiver: Extents with a wrong checksum or seal */
    uint64_t malformed; /* connections closed because of a malformed frame */
    uint64_t lost;      /* connections closed for any reason */
};

struct monarch_server_options {
    uint32_t peers;       /* their numbers are below this */
    uint32_t connections; /* of all peers together */
    uint32_t park_ms;     /* how long a request waits until its File is READY */
    uint32_t stall_ms;    /* how long a peer may read nothing while bytes wait for it */
};

struct monarch_receiver_options {
    uint32_t peers;
    uint32_t in_flight;  /* Files fetched from one peer at once */
    uint32_t timeout_ms; /* of an order without any byte */
    uint32_t react_ms;   /* of a peer that sends nothing while a reply is due */
    uint32_t threads;    /* each fetches from its share of the peers */
    uint32_t sealed;     /* 1: Extents are verified by their seals */
};

struct monarch_fetch { /* an order: fetch this File from this peer into this Tier */
    uint32_t file;
    uint16_t tier;
    uint16_t reserved;
    uint32_t peer;
};

struct monarch_arrival {
    uint32_t file;
    uint16_t tier;
    uint8_t step; /* enum monarch_step */
    uint8_t reserved;
    uint32_t peer;
    int32_t status; /* as in a completion; at MONARCH_STEP_READ the status of the reply,
                       or the error of the connection */
    uint64_t bytes; /* received for it */
    uint64_t ns;    /* since its first request */
};

struct server;
struct receiver;

MONARCH_API int monarch_server_new(struct engine *e,
                                   const struct monarch_server_options *options,
                                   struct server **out);
MONARCH_API int monarch_server_adopt(struct server *s, uint32_t peer, int fd);
MONARCH_API int monarch_server_drop(struct server *s, uint32_t peer);
MONARCH_API void monarch_server_traffic(const struct server *s,
                                        struct monarch_traffic *out);
MONARCH_API void monarch_server_free(struct server *s);

MONARCH_API int monarch_receiver_new(struct engine *e,
                                     const struct monarch_receiver_options *options,
                                     struct receiver **out);
MONARCH_API int monarch_receiver_event_fd(const struct receiver *r);
MONARCH_API int monarch_receiver_connect(struct receiver *r, uint32_t peer, int fd);
MONARCH_API int monarch_receiver_disconnect(struct receiver *r, uint32_t peer);
MONARCH_API uint32_t monarch_receiver_submit(struct receiver *r,
                                             const struct monarch_fetch *orders,
                                             uint32_t n);
MONARCH_API uint32_t monarch_receiver_arrivals(struct receiver *r,
                                               struct monarch_arrival *out,
                                               uint32_t max);
MONARCH_API void monarch_receiver_traffic(const struct receiver *r,
                                          struct monarch_traffic *out);
MONARCH_API void monarch_receiver_free(struct receiver *r);

#endif
