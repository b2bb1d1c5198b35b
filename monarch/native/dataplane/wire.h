/* wire.h - what two data planes say to each other: fixed-size frames, little-endian.
 *
 * A request names one Extent of one File of a Catalog that both nodes hold; there is no
 * path in it. Each request is answered once, in any order, except that the Extents of one
 * File are answered in the order in which they were asked for. A reply with status 0 is
 * followed by `size` bytes. Before the answer, any number of replies with -EINPROGRESS may
 * say that the request is known and waits for its File: one at once, and others so that
 * who asks sees that the node lives.
 *
 * Nothing but the seal keeps out who sits on the wire. It covers the bytes and what they
 * are said to be, and who asks knows what it asked for: so a request or a head that was
 * changed or made up can cost the answer or the connection, as cutting the wire can, but
 * gives no wrong bytes. `ready` is for the report alone.
 */
#ifndef MONARCH_FRAME_H
#define MONARCH_FRAME_H

#include <stdint.h>

#include "dataplane/monarch.h"
#include "shared/layout.h"

#define FRAME_REQUEST_MAGIC 0x5251504du /* "MPQR" */
#define FRAME_REPLY_MAGIC 0x5352504du   /* "MPRS" */

#define FRAME_READY 0xffffffffu /* all bits, so that a damaged one shows */

enum { FRAME_EXTENT = 1, STATUS_MIN = -4095 };

struct frame_request {
    uint32_t magic;
    uint16_t kind; /* FRAME_EXTENT */
    uint16_t reserved;
    uint64_t id;
    uint64_t catalog_digest;
    uint32_t file, extent;
};

struct frame_reply {
    uint32_t magic;
    int32_t status; /* 0; -ENOENT: not here and not going to be; -EAGAIN: late,
                       or the Replica has changed since the first Extent;
                       -ESTALE: another catalog; -EIO: the Replica is broken;
                       -EINPROGRESS: not yet, the request stays open */
    uint64_t id;
    uint32_t file, extent;
    uint64_t size;   /* bytes that follow */
    uint64_t digest; /* chained xxh3 of the Extent; 0 where seals stand for it */
    uint32_t ready;  /* FRAME_READY: it had the File when it was asked; else 0 */
    struct monarch_seal seal; /* zero where the job's nodes make none */
};

_Static_assert(sizeof(struct frame_request) == 32, "request");
_Static_assert(sizeof(struct frame_reply) == 72, "reply");

/* frame_extents - how many Extents a File of this size has; an empty one has one. */
static inline uint64_t frame_extents(uint64_t size)
{
    return size ? (size + EXTENT_BYTES - 1) / EXTENT_BYTES : 1;
}

/* frame_extent_bytes - the size of an Extent that the File has. */
static inline uint64_t frame_extent_bytes(uint64_t size, uint32_t extent)
{
    uint64_t left = size - (uint64_t)extent * EXTENT_BYTES;
    return left < EXTENT_BYTES ? left : EXTENT_BYTES;
}

struct frame_request frame_ask(const struct catalog *cat, uint64_t id, uint32_t file,
                               uint32_t extent);
int frame_check_request(const struct catalog *cat, const struct frame_request *f);
int frame_check_reply(const struct catalog *cat, const struct frame_request *asked,
                      const struct frame_reply *f);

#endif
