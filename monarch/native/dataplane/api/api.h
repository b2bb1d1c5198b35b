/* api.h - the interface of libmonarch.so for Python: the shared layouts as a text,
 * functions of shared/, and the engine that copies Files. Peers: api_peers.h.
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
MONARCH_API int monarch_file_system_traits(const char *directory);
MONARCH_API int64_t monarch_index_find_inode(const void *block, uint64_t dev,
                                             uint64_t ino);
MONARCH_API void monarch_replica_name(const void *block, uint64_t root_hash,
                                      uint32_t entry, char out[32]);

/* ---- words that other processes wait for ----------------------------------------- */

MONARCH_API int monarch_state_change(uint32_t *words, uint32_t file, uint32_t seen,
                                     uint32_t next, int wakes);
struct monarch_rule { /* which state words are changed, and to which fixed part */
    uint32_t mask, from, to;
};

MONARCH_API uint64_t monarch_states_change(uint32_t *words, const uint64_t *files,
                                           uint64_t n, const struct monarch_rule *rule);
MONARCH_API void monarch_states_confirm(uint32_t *words, const uint64_t *files,
                                        uint64_t n);
MONARCH_API void monarch_marks_set(uint8_t *marks, const uint64_t *numbers,
                                   const uint8_t *bits, size_t n);
MONARCH_API void monarch_agent_state_store(void *requests, uint32_t state);
MONARCH_API void monarch_beat(void *requests);
MONARCH_API void monarch_catalog_state_store(void *requests, uint32_t state);
MONARCH_API void monarch_changes_apply(const void *outline, void *changes,
                                       const void *catalog, void *flags);

/* ---- rights and mounts of this process -------------------------------------------- */

MONARCH_API void monarch_rights_read(void *rights);
MONARCH_API uint32_t monarch_rights_mark(void);
MONARCH_API int monarch_mounts_cover(const void *block, const char *directory,
                                     size_t n);

/* ---- scan ------------------------------------------------------------------------- */

enum { SCAN_LIST_BYTES = 64 << 10 };

struct monarch_found { /* the metadata of a name, as the kernel tells it */
    uint64_t ino, size, blocks, dev, nlink, blksize;
    int64_t mtime_s, ctime_s, atime_s;
    uint32_t mtime_ns, ctime_ns, atime_ns;
    uint32_t mode, uid, gid;
    uint32_t
        readable;   /* 1: faccessat() has said so; 0: nobody has asked, or it is not */
    int32_t status; /* 0 or -errno: nothing else is set */
};

struct monarch_row { /* metadata as the Catalog has it */
    uint64_t ino, size;
    int64_t mtime_ns, ctime_ns, atime_ns;
    uint32_t blocks; /* NONE32: too many, or other values do not fit: ask the origin */
    uint32_t attr;   /* number of the attributes that many names share */
};

enum scan_kind {
    SCAN_FILE = 0,
    SCAN_DIRECTORY,
    SCAN_LINK,
    SCAN_SPECIAL,    /* not a file, directory or link */
    SCAN_MOUNT,      /* a directory of another file system */
    SCAN_ABSURD,     /* the Catalog cannot represent the metadata */
    SCAN_GONE,       /* removed since the directory was read */
    SCAN_UNREADABLE, /* to this process */
    SCAN_FAILED,     /* by another error, which may pass */
};

MONARCH_API int64_t monarch_scan_list(int fd, char *names, uint8_t *types);
MONARCH_API uint32_t monarch_scan_find(int fd, const char *names, uint32_t count,
                                       struct monarch_found *out, uint64_t limit_ns);
MONARCH_API void monarch_scan_readable(int fd, const char *names, uint32_t count,
                                       struct monarch_found *out);
MONARCH_API void monarch_scan_rows(const struct monarch_found *found, uint32_t count,
                                   uint64_t root_dev, struct monarch_row *rows,
                                   uint8_t *kinds);
MONARCH_API int monarch_rights_are_local(int fd);
MONARCH_API int monarch_is_pseudo(int fd);

/* ---- seals ------------------------------------------------------------------------ */

enum { SEAL_KEY_BYTES = 32, SEAL_NONCE_BYTES = 12, SEAL_TAG_BYTES = 16 };

struct monarch_seal { /* of an Extent: a MAC with the key of the job */
    uint8_t nonce[SEAL_NONCE_BYTES], tag[SEAL_TAG_BYTES];
};

MONARCH_API const char *monarch_seal_library(void);

/* ---- engine ----------------------------------------------------------------------- */

/* ---- the staging table ------------------------------------------------------------ */

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
    uint64_t evicted_files,
        evicted_bytes; /* to make room, by recency; bytes: that room */
};

enum { /* bits of a peer */
       PEER_USABLE = 1,
       PEER_GONE = 2, /* and reads nothing from the origin any more */
};

struct monarch_tally {           /* what the data plane has done without Python */
    uint64_t in_flight, offered; /* now */
    uint64_t demand_transfers, background_transfers;
    uint64_t staged_files, staged_bytes;
    uint64_t peer_files, peer_bytes;
    uint64_t adopted_files, adopted_bytes;
    uint64_t transit_files, transit_bytes, transit_full;
    uint64_t rehomed_files, origin_instead_files;
    uint64_t origin_read_bytes;
    uint64_t transfer_ns, busy_ns, origin_busy_ns;
    uint64_t passed_over; /* Files whose peers could not be asked by fill */
    uint64_t crowded;     /* Files that find no room while frames under way hold some */
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

struct monarch_fetched { /* from one peer, and right */
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
    uint64_t large_bytes; /* programs wait for few Files above */
};

struct monarch_plan { /* by which a table decides from now on; copied */
    const struct monarch_table_row *rows; /* per Extent */
    uint32_t own;                         /* the number of this node */
    uint32_t peers;                       /* numbers of nodes are below this */
    uint32_t uses_pool; /* 1: a File without room goes through the Pool */
    uint32_t reserved;
};

/* What becomes of a File that is asked for. */
enum monarch_verdict {
    VERDICT_BEGUN = 0, /* the order is filled in, its room reserved */
    VERDICT_NOTHING,   /* it is being staged already, or refused */
    VERDICT_READY,     /* it is there: a program could not open it */
    VERDICT_POOL,      /* the Pool has no room for it now */
    VERDICT_PASSED,    /* fill must not begin it now */
    VERDICT_WRITTEN,   /* it is, and a Replica of an earlier job is in its Tier */
    VERDICT_WHOLE,     /* it can only be staged whole */
    VERDICT_EVICT,     /* a Tier has room for it once Replicas have been evicted */
};

struct table;

/* Bits of an order. */
enum monarch_kind {
    MONARCH_DEMAND = 0,
    MONARCH_BACKGROUND = 1, /* yields to others */
    MONARCH_ADOPT = 2,      /* verify an existing Replica instead of copying */
    MONARCH_ADOPT_BACKGROUND = 3,
    MONARCH_ASKED = 4,    /* by a program or a peer, not by fill */
    MONARCH_REPORT = 8,   /* Python collects its success too */
    MONARCH_HINT = 16,    /* a hint says that it will be opened: the Pool may take it */
    MONARCH_PARTLY = 32,  /* it has begun because Blocks were asked for */
    MONARCH_AWAITED = 64, /* a program waits for it, though it is large */
    MONARCH_LOCAL = 128,  /* between a packed Tier and the Pool */
};

struct monarch_order { /* one Transfer */
    uint32_t file;
    uint16_t tier;
    uint8_t kind;  /* enum monarch_kind */
    uint8_t tried; /* of some Blocks: how many of its sources have failed */
    uint32_t peer; /* NO_PEER: the origin, or the Tier itself */
    uint32_t word; /* the state word with which it began: its generation */
    uint32_t first_block, block_count; /* of a large File; 0: all that it lacks */
};

#define NO_PEER 0xffffffffu

struct monarch_lru_view {  /* of the Files of a job; arrays by their numbers */
    const uint32_t *words; /* state words */
    const uint32_t *used;  /* the tick of the last use */
    uint64_t files;
    uint32_t tier, now; /* whose Replicas; the tick of this moment */
};

struct monarch_lru_file {
    uint32_t file, age; /* ticks since it was used */
};

MONARCH_API uint32_t monarch_lru_oldest(const struct monarch_lru_view *view,
                                        struct monarch_lru_file *out, uint32_t max);
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

struct monarch_packing { /* how a Tier is packed, or its Files of one rule */
    uint32_t tier;
    uint32_t method; /* enum method */
    int32_t level;
    uint16_t shuffle, rule; /* rule 0: those of no other */
    const uint8_t *rules;   /* of rule 0: the rule of each File; NULL: 0; borrowed */
    const void *dictionary; /* borrowed */
    uint64_t dictionary_bytes;
};

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
    struct table *table;        /* borrowed; NULL: Python orders every Transfer */
    const struct monarch_packing *packings; /* borrowed */
    uint64_t packing_count;
};

/* Which origins do not answer, and how many Transfers hang in system calls. */
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

/* What the origin has given since the engine has begun. A read is a copy of a File; of a
 * background copy each step, which is a chunk. */
enum {
    PACE_FILES, /* copies that have ended well */
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
    uint32_t expired; /* 1: Python was silent, its File is absent and busy already */
    uint32_t blocks;  /* of how many Blocks it was; 0: of the whole File */
    uint32_t
        alone; /* 1: it tells of the Tier alone; the Transfer of the File goes on */
    uint64_t bytes; /* read from the origin or received, also by a failed Transfer */
    uint64_t ns;    /* running time, without the time in which it was parked */
    uint64_t ended_ns;
};

/* Files in the order of background fill; borrowed until the next. */
struct monarch_fill {
    const uint32_t *to_read, *to_fetch; /* from the origin, and from peers */
    uint64_t read_count, fetch_count;
};

enum { HINT_ORDERS_MAX = 256 }; /* of different programs at once */

struct monarch_hint_tally {
    uint64_t left;                     /* hints that were not looked at */
    uint64_t unopened, unopened_bytes; /* Files in the Pool whose opens are to come */
    uint64_t given_up_files;           /* read ahead, and not opened in their turn */
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
MONARCH_API void monarch_engine_fill(struct engine *e, const struct monarch_fill *fill);
MONARCH_API void monarch_engine_fill_pause(struct engine *e, int paused);
MONARCH_API void monarch_engine_fill_left(struct engine *e, uint64_t out[2]);
MONARCH_API void monarch_engine_demand(struct engine *e, uint32_t file, uint32_t kind);
MONARCH_API int monarch_engine_hint(struct engine *e, uint64_t program,
                                    const uint32_t *files, uint64_t n);
MONARCH_API void monarch_engine_hints(struct engine *e, struct monarch_hint_tally *out);
MONARCH_API uint64_t monarch_hint_files(const void *catalog, const char *paths,
                                        size_t bytes, uint32_t *files);
MONARCH_API void monarch_engine_set_background(struct engine *e, uint32_t n,
                                               uint32_t beside);
MONARCH_API void monarch_engine_set_readers(struct engine *e, uint32_t n);
MONARCH_API void monarch_engine_readers(struct engine *e, struct monarch_readers *out);
MONARCH_API uint32_t monarch_engine_demands(struct engine *e, uint64_t *pairs,
                                            uint32_t max);
MONARCH_API uint32_t monarch_engine_slowest(struct engine *e, uint64_t *rows);
MONARCH_API void monarch_engine_pace(struct engine *e, uint64_t out[PACE_COUNT]);
MONARCH_API void monarch_engine_health(struct engine *e, struct monarch_health *out);
MONARCH_API void monarch_engine_forget(struct engine *e, uint32_t tier, uint64_t ino);
MONARCH_API uint64_t monarch_engine_drop_partial(struct engine *e, uint32_t tier,
                                                 uint64_t bytes, uint32_t reason);
MONARCH_API void monarch_engine_keep(struct engine *e, uint32_t tier, uint64_t ino);
MONARCH_API int monarch_engine_free(struct engine *e, uint32_t timeout_ms);

#endif
