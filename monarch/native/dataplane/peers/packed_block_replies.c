/* packed_block_replies.c - gives peers Blocks of large Files out of the frames of this node,
 * without decoding them and without room in its Pool.
 *
 * A piece that has shrunk is sent as it is, behind the checksums that the Blocks had when they
 * came: the peer compares what it has decoded with them. Of one that is stored as it is the
 * Blocks alone are sent, like any others.
 */
#include "dataplane/peers/peer_server.h"

#include <errno.h>
#include <string.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/packed_seal.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/xxh3.h"

struct sent_piece { /* of a frame, with Blocks that a peer asks for */
    uint32_t file, extent;
    struct block_run run;
    struct unpacking frame;
    uint64_t digests[FRAME_BLOCKS_MAX]; /* of the Blocks of the run */
    uint64_t offset;                    /* of what is sent, in its segment */
    size_t bytes;
    bool raw;
};

/* find - the frame with the Blocks of a request, if the peer can decode it. */
static bool find(struct demand *d, const struct pending_request *p,
                 struct sent_piece *out)
{
    *out = (struct sent_piece){.file = p->file,
                               .extent = p->extent / EXTENT_BLOCKS,
                               .run = {p->extent, p->blocks}};
    return p->packing && d->packs &&
           packs_take(d->packs, packs_row(d->packs, p->file, out->extent),
                      &out->frame) &&
           packs_id(d->packs, out->frame.tier, p->file) == p->packing &&
           partial_digests(d->partials, p->file, out->run, out->digests);
}

/* server_piece_there - the Blocks of a request can be sent packed. */
bool server_piece_there(struct server *s, const struct pending_request *p)
{
    struct sent_piece piece;
    return find(s->demand, p, &piece);
}

/* read_head - -EBADMSG: it is no head of a frame of this Extent. */
static int read_head(struct demand *d, struct sent_piece *out, uint64_t size)
{
    struct unpacking *u = &out->frame;
    struct frame_head expected;
    packs_head(packs_codec(d->packs, u->tier, out->file), &expected);
    expected.plain = (uint32_t)extent_bytes(size, out->extent);
    expected.stored = u->place.bytes - (uint32_t)sizeof(u->head);
    job_frame_name(d->job, out->file, expected.name);
    int found = frame_read(u->fd, u->place.offset, &expected, &u->head, u->lengths);
    return found > 0 ? 0 : -EBADMSG;
}

/* find_bytes - which bytes of the segment are to be sent. */
static void find_bytes(struct sent_piece *out, uint64_t size)
{
    const struct unpacking *u = &out->frame;
    uint32_t number = out->run.first % EXTENT_BLOCKS / FRAME_BLOCKS_MAX;
    out->offset = u->place.offset + frame_least_bytes(u->head.plain);
    for (uint32_t i = 0; i < number; i++)
        out->offset += u->lengths[i] & ~FRAME_RAW;
    out->raw = u->lengths[number] & FRAME_RAW;
    out->bytes = u->lengths[number] & ~FRAME_RAW;
    if (!out->raw)
        return;
    out->offset += (uint64_t)(out->run.first % FRAME_BLOCKS_MAX) * BLOCK_BYTES;
    out->bytes = (size_t)blocks_bytes(size, out->run.first, out->run.count);
}

/* as_they_came - Blocks that are stored as they are have their checksums. */
static bool as_they_came(const struct sent_piece *piece, const uint8_t *bytes)
{
    uint64_t digests[FRAME_BLOCKS_MAX];
    blocks_digest(bytes, piece->bytes, digests);
    return memcmp(digests, piece->digests, piece->run.count * sizeof(*digests)) == 0;
}

/* read_piece - the bytes of the reply, and how many; -EAGAIN: the frame was given up, or is
 * damaged and is given up now; -ENOENT: they are more than one chunk. */
static int read_piece(struct demand *d, struct sent_piece *piece, uint8_t *out,
                      uint64_t *n)
{
    uint64_t size = catalog_entry(d->job->catalog, piece->file, NULL)->size;
    uint64_t row = packs_row(d->packs, piece->file, piece->extent);
    int rc = read_head(d, piece, size);
    if (!rc)
        find_bytes(piece, size);
    size_t front = piece->raw ? 0 : piece->run.count * sizeof(uint64_t);
    if (!rc && front + piece->bytes > CHUNK_BYTES)
        return -ENOENT;
    if (!rc && file_read_at(piece->frame.fd, out + front, piece->bytes,
                            piece->offset) != (ssize_t)piece->bytes)
        rc = -EBADMSG;
    if (!rc && piece->raw && !as_they_came(piece, out))
        rc = -EBADMSG;
    memcpy(out, piece->digests, front);
    *n = front + piece->bytes;
    if (!rc)
        return 0;
    if (!packs_moved(d->packs, row, &piece->frame.place))
        packs_drop_damaged(d->packs, piece->file, piece->extent);
    return -EAGAIN;
}

/* certify - see server_certify(). */
static int certify(struct demand *d, const struct pending_request *p, bool raw,
                   const uint8_t *bytes, struct frame_reply *head)
{
    struct extent_name name = {p->file, p->extent, head->size, p->blocks};
    if (!raw)
        name = packed_blocks_name(p->file, p->extent, p->blocks, p->packing,
                                  head->size);
    return server_certify(d->transfers->sealer, &name, bytes, head);
}

/* server_piece_attach - reads the bytes of a reply out of a frame. -ENOENT: there is none;
 * -EAGAIN: the peer is to ask again. */
int server_piece_attach(struct server *s, const struct pending_request *p,
                        struct reply *out)
{
    struct sent_piece piece;
    if (!find(s->demand, p, &piece))
        return -ENOENT;
    if (!(out->bytes = server_take_buffer(s)))
        return -EAGAIN;
    int rc = read_piece(s->demand, &piece, out->bytes, &out->head.size);
    rc = rc ? rc : certify(s->demand, p, piece.raw, out->bytes, &out->head);
    if (rc) {
        server_return_buffer(s, &out->bytes);
        out->head.size = 0;
        return rc == -ENOENT ? rc : -EAGAIN;
    }
    out->head.packed = piece.raw ? 0 : FRAME_IS_PACKED;
    out->left = out->head.size;
    out->offset = 0;
    return 0;
}
