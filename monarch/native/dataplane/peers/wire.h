/* wire.h - the protocol between two data planes: fixed-size frames, little-endian.
 *
 * A request names one Extent of one File of a Catalog that both nodes have, or some
 * Blocks of one Extent of a large File; it contains no path. A File that both nodes can pack
 * alike is sent as it stands in a pack file, if it does; of a large one the piece in which the
 * Blocks are, behind a checksum (u64) of each of them. Each request gets one reply,
 * in any order, except that the replies for the Extents of one File keep the order of its
 * requests. A reply with status 0 is followed by `size` bytes. Any number of replies with -EINPROGRESS may precede the reply: the request is
 * known and waits for its File. One comes at once, the others show that the node is
 * alive. FRAME_WANTED alone has no reply: what fill has requested goes on as demand.
 *
 * Only the seal protects against an attacker on the wire. It covers the bytes and their
 * identity, and the client knows what it requested: a request or a head that was
 * changed or forged can cost the reply or the connection, as cutting the wire can, but
 * it gives no wrong bytes. `ready` is for the report alone.
 */
#ifndef MONARCH_WIRE_H
#define MONARCH_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dataplane/media/seal.h"
#include "dataplane/peers/peers_api.h"
#include "shared/layout.h"
#include "shared/presence.h"

#define FRAME_REQUEST_MAGIC 0x5251504du /* "MPQR" */
#define FRAME_REPLY_MAGIC 0x5352504du   /* "MPRS" */

#define FRAME_READY 0xffffffffu /* all bits, so that damage is detected */
#define FRAME_IS_PACKED 0xffffffffu

enum {
    FRAME_EXTENT = 1, /* a whole Extent of a File that is READY, or will be */
    FRAME_BLOCKS = 2,
    FRAME_WANTED = 3, /* Blocks that were requested: programs wait for them now */
    FRAME_PACKED = 4, /* a whole File of one Extent; packed, if the node has it so */
    FRAME_BLOCKS_MAX = CHUNK_BYTES / BLOCK_BYTES, /* of one request */
    STATUS_MIN = -4095,
};

enum { FRAME_UNASKED = 1 }; /* a flag: no program waits for it */

struct frame_request {
    uint32_t magic;
    uint8_t kind;   /* FRAME_EXTENT, FRAME_BLOCKS, FRAME_WANTED or FRAME_PACKED */
    uint8_t blocks; /* how many */
    /* How many from the first on will be asked for: the origin is read for all at once. */
    uint8_t wanted;
    uint8_t flags; /* FRAME_UNASKED */
    uint64_t id;
    uint64_t catalog_digest;
    uint32_t file, extent; /* or the number of the first Block in the File */
    uint32_t packing;      /* that the client can decode, see packs_id(); or 0 */
    uint32_t reserved;
};

struct frame_reply {
    uint32_t magic;
    int32_t status; /* 0; -ENOENT: this node will not have it; -EAGAIN: late, or the
                       Replica has changed since the first Extent; -ESTALE: another
                       Catalog; -EIO: the Replica is broken; -EINPROGRESS: not yet,
                       the request stays open */
    uint64_t id;
    uint32_t file, extent; /* as in the request */
    uint64_t size;         /* bytes that follow */
    uint64_t
        digest; /* chained xxh3 of the Extent, or that of the Blocks or of the bytes of a pack file;
                        0 where seals replace it; with -EINPROGRESS how far the File has come, see
                        progress.h, or 0 */
    uint32_t ready; /* FRAME_READY: the File was ready when the request came; else 0 */
    uint32_t
        packed; /* FRAME_IS_PACKED: the bytes are those of a pack file, see frame.h */
    uint32_t reserved;
    struct monarch_seal seal; /* zero where the nodes of the job make none */
};

_Static_assert(sizeof(struct frame_request) == 40, "request");
_Static_assert(sizeof(struct frame_reply) == 80, "reply");

/* frame_in_piece - some Blocks are in one piece of a frame. */
static inline bool frame_in_piece(uint32_t first, uint32_t blocks)
{
    return first % FRAME_BLOCKS_MAX + blocks <= FRAME_BLOCKS_MAX;
}

struct frame_request frame_request_make(const struct catalog *cat, uint64_t id,
                                        uint32_t file, uint32_t extent);
uint64_t frame_reply_bytes(const struct catalog *cat, const struct frame_request *f);
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
