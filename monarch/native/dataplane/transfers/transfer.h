/* transfer.h - one running copy from a Source into a Tier, or one check of a Replica
 * that an earlier job has left there. */
#ifndef MONARCH_TRANSFER_H
#define MONARCH_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/extents/packs.h"
#include "dataplane/media/seal.h"
#include "dataplane/sources/origin.h"
#include "dataplane/transfers/transfers.h"

enum {
    READ_CHUNKS_MAX = 4, /* what is read at once for a program that waits */
    /* The last read asks for one byte more, so that growth of the origin shows. */
    TRANSFER_BUFFER_BYTES = READ_CHUNKS_MAX * CHUNK_BYTES + 4096,
    TEMPORARY_BYTES = 1 + REPLICA_NAME_BYTES + 1 + 10 + sizeof(".part"),
};

struct transfer {
    struct monarch_order order;
    uint32_t queue;               /* number of its root, also before it has begun */
    uint64_t age;                 /* of its order */
    uint32_t limits;              /* engine.limits when it began */
    uint32_t chunk_limits;        /* the same when its chunk began */
    bool has_token, awaits_token; /* to read the origin; under the lock of all */
    bool wanted;                  /* by another node, though fill has begun it */
    bool running, lost;           /* see struct root_queue; under the lock of all */
    bool at_origin;               /* it is counted so; under the lock of all */
    _Atomic uint64_t moved_ns;    /* when its last step has ended, or its first begun */
    atomic_bool waits;            /* for what others copy or peers send */
    uint8_t step;
    uint8_t from; /* enum source */
    bool begun;
    bool named; /* the temporary file has a name in the Tier */
    int tier;   /* descriptor of its directory; borrowed */
    int source, target;
    struct original original;
    uint64_t tier_dev;
    char name[REPLICA_NAME_BYTES + 1];
    char temporary[TEMPORARY_BYTES];
    uint64_t *first_digest,
        *digest; /* of the File's first Extent, and the current one */
    uint64_t offset;
    uint32_t chunks;         /* that the next read is to bring */
    uint64_t chain;          /* checksum of the current Extent so far */
    struct sealing *sealing; /* seal of the current Extent in progress */
    struct monarch_seal seal;
    uint64_t replica_ino;
    uint64_t bytes, ns;
    uint64_t counted_bytes, counted_ns; /* of these, by pace_read() */
    struct frame *frame;                /* for a packed Tier; else `target` */
    struct unpacking unpacking;         /* from a packed Tier */
    struct frame *came; /* a File that a peer has sent packed, or plain before */
    bool leaves_plain;  /* another thread is to compress its bytes */
    uint64_t unpack_ns;
    struct partial *partial;      /* of a large File, from its first step on */
    uint64_t shift;               /* where the file with the Pages begins in it */
    bool own_target;              /* it is to be closed after the step */
    uint32_t next_page, end_page; /* of that */
    bool unable;                  /* some of its Pages could not be brought just now */
    struct monarch_completion completion;
};

static inline bool transfer_adopts(const struct transfer *t)
{
    return t->order.kind & 2;
}

/* transfer_repacks - between a packed Tier and the Pool. */
static inline bool transfer_repacks(const struct transfer *t)
{
    return t->order.kind & MONARCH_LOCAL;
}

/* transfer_is_local - it does not read the origin. */
static inline bool transfer_is_local(const struct transfer *t)
{
    return transfer_adopts(t) || transfer_repacks(t);
}

/* transfer_parts.c: what all Sources have in common; transfer_steps.c: the copy of the origin */
void transfer_init(struct transfer *t, const struct monarch_order *order);
int transfer_prepare(struct transfers *ts, struct transfer *t);
bool transfer_written(const struct transfers *ts, const struct transfer *t);
int transfer_publish(struct transfers *ts, struct transfer *t);
bool transfer_run(struct transfers *ts, struct transfer *t, uint8_t *buffer);
void transfer_end(struct transfer *t, int status);
void transfer_note_read(struct transfers *ts, struct transfer *t, uint64_t ns,
                        uint32_t chunks);

void transfer_count_read(struct transfers *ts, struct transfer *t, uint64_t bytes);
int transfer_add(struct transfers *ts, struct transfer *t, const uint8_t *bytes,
                 size_t n);

int extent_begin(struct transfers *ts, struct transfer *t,
                 const struct monarch_seal *peers);
int extent_add(struct transfers *ts, struct transfer *t, const void *bytes, size_t n);
int extent_end(struct transfer *t);
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

enum { SHARING_NONE = 1 };

/* sharing.c: what other jobs of this user have */
int sharing_begin(struct transfers *ts, struct transfer *t);
int sharing_finish(struct transfers *ts, struct transfer *t, uint8_t *buffer);

static inline bool transfer_shares(const struct transfer *t)
{
    return t->from == SOURCE_SIBLING;
}

/* partial_whole.c */
int partial_gather(struct transfers *ts, struct transfer *t, uint8_t *buffer);

#endif
