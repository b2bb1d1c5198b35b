/* wire.h - the protocol between two data planes: fixed-size frames, little-endian.
 *
 * A request names a range of Blocks of a File in a Catalog that both nodes have: all of one Extent,
 * or up to FRAME_BLOCKS_MAX of its Blocks; it contains no path. A small File is one Extent, an
 * empty one is a Block without bytes. Each request gets one reply, in any order, except that the
 * replies for whole Extents of one File keep the order of its requests. A reply with status 0 is
 * followed by `size` bytes: those of the range, or, if both nodes pack the File alike, a frame of
 * the pieces that contain the range. The digest of a frame is that of the Extent, or, for some of
 * its Blocks, that of their checksums. Any number of replies with -EINPROGRESS may precede the
 * reply: the request waits for its File. The first is sent at once, the others show that the node
 * is alive. FRAME_WANTED has no reply: it turns requests of fill into demand.
 *
 * Only the seal protects against an attacker on the wire. It covers the bytes and their identity,
 * and the client knows its request: a changed or forged request or head can cost the reply or the
 * connection, as cutting the wire can, but never yields wrong bytes. `ready` is for the report
 * only.
 */
#ifndef MONARCH_WIRE_H
#define MONARCH_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dataplane/extents/order.h"
#include "dataplane/media/seal.h"
#include "dataplane/peers/peers_api.h"
#include "shared/layout.h"
#include "shared/presence.h"

#define FRAME_REQUEST_MAGIC 0x5251504du /* "MPQR" */
#define FRAME_REPLY_MAGIC 0x5352504du   /* "MPRS" */

#define FRAME_READY 0xffffffffu /* all bits, so that damage is detected */
#define FRAME_IS_PACKED 0xffffffffu

enum {
    FRAME_BLOCKS_MAX = CHUNK_BYTES / BLOCK_BYTES, /* of a range within an Extent */
    STATUS_MIN = -4095,
};

enum {                    /* flags of a request */
       FRAME_UNASKED = 1, /* no program waits for it */
       FRAME_WANTED = 2,  /* no request: programs wait for these Blocks now */
       FRAME_WHOLE = 4,   /* all Extents of the File are requested, in their order */
};

struct frame_request {
    uint32_t magic;
    uint8_t blocks; /* how many */
    /* Blocks from the first on that will be requested: the origin is read for all at once. */
    uint8_t wanted;
    uint8_t flags;
    uint8_t reserved;
    uint64_t id;
    uint64_t catalog_digest;
    uint32_t file, first; /* the number of the first Block in the File */
    uint32_t packing;     /* that the client can decode, see packs_id(); or 0 */
    uint32_t reserved_too;
};

struct frame_reply {
    uint32_t magic;
    int32_t status; /* 0; -ENOENT: this node will not have it; -EAGAIN: late; -ESTALE:
                       another Catalog; -EIO: the Replica is broken; -EINPROGRESS:
                       not yet, the request stays open */
    uint64_t id;
    uint32_t file, first; /* as in the request */
    uint64_t size;        /* bytes that follow */
    uint64_t digest;      /* their chained xxh3, or 0 with seals; with -EINPROGRESS the
                             progress of the File, see progress.h, or 0 */
    uint64_t replica; /* differs between Replicas of the same File over time; or 0 */
    uint32_t ready;   /* FRAME_READY: the File was ready at the request; else 0 */
    uint32_t packed;  /* FRAME_IS_PACKED: the bytes are a frame, see frame.h; else 0 */
    uint32_t reserved;
    struct monarch_seal seal; /* zero if the nodes of the job make none */
};

_Static_assert(sizeof(struct frame_request) == 40, "request");
_Static_assert(sizeof(struct frame_reply) == 88, "reply");

/* frame_range - returns the Blocks of a request. */
static inline struct block_run frame_range(const struct frame_request *f)
{
    return (struct block_run){f->first, f->blocks};
}

/* frame_pieces_range - returns the Blocks of the pieces that contain those of a request; at the end
 * of the File there may be fewer. */
static inline struct block_run frame_pieces_range(const struct frame_request *f)
{
    uint32_t into = f->first % FRAME_BLOCKS_MAX, count = into + f->blocks;
    uint32_t rest = -count % FRAME_BLOCKS_MAX;
    return (struct block_run){f->first - into, count + rest};
}

/* frame_sealed_name - returns the identity that the seal of a reply covers. */
static inline struct range_name frame_sealed_name(const struct frame_request *asked,
                                                  const struct frame_reply *f)
{
    uint64_t packed = f->packed ? 1ull << 63 | (uint64_t)asked->packing << 8 : 0;
    return (struct range_name){asked->file, asked->first, f->size,
                               packed | asked->blocks};
}

struct frame_request frame_request_make(const struct catalog *cat, uint64_t id,
                                        uint32_t file, struct block_run range);
bool frame_is_extent(const struct catalog *cat, const struct frame_request *f);
uint64_t frame_range_digest(bool whole, const uint8_t *bytes, size_t n);
int frame_check_request(const struct catalog *cat, const struct frame_request *f);
int frame_check_reply(const struct catalog *cat, const struct frame_request *request,
                      const struct frame_reply *f);

/* traffic_add - adds to a count that other threads read. */
static inline void traffic_add(uint64_t *count, uint64_t n)
{
    atomic_fetch_add_explicit((_Atomic uint64_t *)count, n, memory_order_relaxed);
}

void traffic_copy(const struct monarch_traffic *from, struct monarch_traffic *to,
                  uint32_t peers);

#endif
