/* transfer.h - one running copy from a Source into a Tier, or one check of a Replica
 * that an earlier job has left there. */
#ifndef MONARCH_TRANSFER_H
#define MONARCH_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/extents/packs.h"
#include "dataplane/media/seal.h"
#include "dataplane/sources/origin.h"
#include "dataplane/transfers/transfer_states.h"
#include "dataplane/transfers/transfers.h"

enum {
    READ_CHUNKS_MAX = 4, /* read at once for a waiting program */
    /* The last read requests one byte more, to detect growth of the origin. */
    TRANSFER_BUFFER_BYTES = READ_CHUNKS_MAX * CHUNK_BYTES + 4096,
    TEMPORARY_BYTES = 1 + REPLICA_NAME_BYTES + 1 + 10 + sizeof(".part"),
};

struct transfer;

/* Results of a step beside 0 and -errno. */
enum { STEP_MORE = 1, STEP_ELSEWHERE = 2 };

typedef int transfer_step(struct transfers *ts, struct transfer *t, uint8_t *buffer);
typedef int transfer_settle(struct transfers *ts, struct transfer *t, int rc);

/* A Source with its target: the step of each state. NULL: the state is done at once. */
struct route {
    transfer_step *steps[TRANSFER_ENDED];
    /* Releases what the Transfer holds, and returns its result; or undoes what was opened, and
     * returns STEP_ELSEWHERE, for `next`. `rc` is the result of the last step. */
    transfer_settle *settle;
    const struct route *next; /* tried after STEP_ELSEWHERE; or NULL */
};

extern const struct route route_sibling; /* another job; else the origin */
extern const struct route route_origin, route_retained;
extern const struct route route_frame, route_pool; /* small Files in packed Tiers */
extern const struct route route_extent_frame, route_extent_pool; /* Extents, the same */
extern const struct route route_came; /* plain bytes of a peer, for a packed Tier */

/* The scheduling state of a Transfer; guarded by the lock of all, except the atomic words. */
struct turn {
    uint32_t queue;               /* number of its root, also before it has begun */
    uint64_t age;                 /* of its order */
    uint32_t limits;              /* transfers.limits when it began */
    uint32_t chunk_limits;        /* the same when its chunk began */
    bool has_token, awaits_token; /* to read the origin */
    atomic_bool wanted;           /* by another node, though fill has begun it */
    bool running, lost;           /* see struct root_queue */
    bool at_origin;               /* it is counted as reading the origin */
    bool hurried;                 /* it packs as fast as possible, to free space */
    _Atomic uint64_t moved_ns;    /* when its last step ended, or its first one began */
    atomic_bool waits;            /* for Pages that others copy, or for peers */
};

struct replica_file {  /* that a Transfer writes, checks or links */
    int dir;           /* of its Tier; borrowed */
    uint64_t dev;      /* of that Tier */
    int fd;            /* or -1 */
    bool is_own;       /* it is closed after the step */
    bool named;        /* `temporary` exists in the Tier */
    uint64_t shift;    /* offset in the File at which this file begins */
    uint16_t removals; /* see partial_removals() */
    uint64_t ino;      /* once it is known */
    char name[REPLICA_NAME_BYTES + 1];
    char temporary[TEMPORARY_BYTES];
};

struct reading {     /* of a Source */
    int fd;          /* or -1 */
    uint64_t offset; /* in the File, of the next piece */
    uint32_t chunks; /* of the next read */
    size_t piece;    /* bytes in the buffer that are not written yet */
};

struct running_sum {      /* checksum and seal of the Extent that is being copied */
    uint64_t *first, *at; /* the stored checksums of the first Extent and of this one */
    uint64_t chain;       /* checksum so far */
    struct sealing *sealing; /* the seal so far */
    struct monarch_seal seal;
};

struct spent {
    uint64_t bytes, ns;
    uint64_t counted_bytes, counted_ns; /* of these, by pace_read() */
    uint64_t unpack_ns;                 /* of these, to decode */
};

struct page_span { /* of an order for Pages */
    uint32_t next, end;
    bool unable; /* some of its Pages cannot be copied just now */
};

struct transfer {
    struct monarch_order order;
    const struct route *route; /* NULL: it has not run yet */
    enum transfer_state state;
    uint8_t step;      /* enum monarch_step: the last system call, to judge errors */
    uint8_t from;      /* enum source */
    bool leaves_plain; /* another thread is to compress its bytes */
    struct turn turn;
    struct original original;
    struct reading read;
    struct replica_file file;
    struct running_sum sum;
    struct frame *frame;        /* for a packed Tier; else `file` */
    struct frame *came;         /* a File received packed, or received plain earlier */
    struct unpacking unpacking; /* from a packed Tier */
    struct partial *partial;    /* of a large File, from its first step on */
    struct page_span pages;     /* the same */
    struct spent spent;
    struct monarch_completion completion;
};

static inline bool transfer_adopts(const struct transfer *t)
{
    return t->order.kind & 2;
}

/* transfer_repacks - it copies between a packed Tier and the Pool. */
static inline bool transfer_repacks(const struct transfer *t)
{
    return t->order.kind & MONARCH_LOCAL;
}

/* transfer_defers - it compresses plain bytes of a peer. */
static inline bool transfer_defers(const struct transfer *t)
{
    return transfer_repacks(t) && t->order.peer != NO_PEER;
}

/* transfer_is_local - it does not read the origin. */
static inline bool transfer_is_local(const struct transfer *t)
{
    return transfer_adopts(t) || transfer_repacks(t);
}

/* transfer_run.c */
bool transfer_run(struct transfers *ts, struct transfer *t, uint8_t *buffer);

/* transfer_parts.c: common to all Sources; origin_route.c: the copy from the origin */
void transfer_init(struct transfer *t, const struct monarch_order *order);
int transfer_prepare(struct transfers *ts, struct transfer *t);
int transfer_check(struct transfers *ts, struct transfer *t, uint8_t *buffer);
int transfer_commit(struct transfers *ts, struct transfer *t, uint8_t *buffer);
bool transfer_written(const struct transfers *ts, const struct transfer *t);
int transfer_publish(struct transfers *ts, struct transfer *t);
void transfer_end(struct transfer *t, int status);
int transfer_write(struct transfers *ts, struct transfer *t, uint8_t *buffer);
void transfer_note_read(struct transfers *ts, struct transfer *t, uint64_t ns,
                        uint32_t chunks);

void transfer_count_read(struct transfers *ts, struct transfer *t, uint64_t bytes);
int transfer_add(struct transfers *ts, struct transfer *t, const uint8_t *bytes,
                 size_t n);

int sum_begin(struct running_sum *sum, struct sealer *sealer,
              const struct range_name *name, const struct monarch_seal *seal);
int sum_add(struct running_sum *sum, const void *bytes, size_t n);
int sum_end(struct running_sum *sum);
int extent_begin(struct transfers *ts, struct transfer *t);
int extent_add(struct transfers *ts, struct transfer *t, const void *bytes, size_t n);
void extent_store(struct transfers *ts, struct transfer *t);
struct monarch_seal extent_seal(struct transfers *ts, uint64_t place);

/* Each of these sets the step of the Transfer and returns 0 or -errno. */
int transfer_open_origin(struct transfers *ts, struct transfer *t);
int transfer_origin_same(struct transfer *t);
int transfer_origin_unchanged(struct transfer *t);
void transfer_drop_pages(const struct transfers *ts, const struct transfer *t,
                         uint64_t offset, uint64_t n);

int replica_file_adopt(struct transfer *t, uid_t euid);
int replica_file_create(struct transfers *ts, struct transfer *t);
int replica_file_write(struct transfers *ts, struct transfer *t, const void *bytes,
                       size_t n);
int replica_file_verify(struct transfer *t);
int replica_file_publish(struct transfers *ts, struct transfer *t);

/* partial_files.c: the files of a large File, for one step of a Transfer */
int partial_borrow(struct transfers *ts, struct transfer *t, uint32_t extent,
                   bool source);
void partial_return(struct transfer *t);

/* sibling_route.c: large Files of other jobs of this user */
bool sharing_has(struct transfers *ts, struct transfer *t, bool waits);
int sharing_link(struct transfers *ts, const struct monarch_order *order);

static inline bool transfer_shares(const struct transfer *t)
{
    return t->from == SOURCE_SIBLING;
}

/* partial_whole.c */
int partial_assemble_whole(struct transfers *ts, struct transfer *t, uint8_t *buffer);

#endif
