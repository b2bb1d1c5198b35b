/* peer_client_arrivals.c - handles replies of peers: bytes of a File, or a frame of its pieces.
 * They are compared with the checksum or the seal of the peer, and stored in a Replica.
 *
 * A frame is stored as the peer had it. Its plain bytes are checked when they are decoded: at once,
 * or, if this node keeps the File packed, when a program opens it.
 */
#include "dataplane/peers/peer_client.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/progress.h"

/* ---- frames ---------------------------------------------------------------------------- */

/* decode_piece - sets `out` to the plain bytes of a piece: those in the frame, or those decoded
 * into the buffer. */
static int decode_piece(struct demand *d, const struct transfer *t, uint32_t number,
                        uint8_t *buffer, const uint8_t **out)
{
    const struct frame *came = t->came;
    size_t left = came->plain - (size_t)number * PIECE_BYTES;
    size_t at = frame_least_bytes(came->plain);
    for (uint32_t i = 0; i < number; i++)
        at += frame_length(came, i) & ~FRAME_RAW;
    uint32_t length = frame_length(came, number);
    const struct packed_piece piece = {packs_codec(d->packs, came->tier, t->order.file),
                                       came->bytes + at, length & ~FRAME_RAW};
    *out = length & FRAME_RAW ? piece.bytes : buffer;
    if (length & FRAME_RAW)
        return 0;
    return packing_decode(d->transfers, &piece, buffer,
                          left < PIECE_BYTES ? left : PIECE_BYTES);
}

/* decode_pieces - decodes a File into a Replica. */
static int decode_pieces(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    const uint8_t *bytes;
    int rc = replica_file_create(d->transfers, t);
    for (uint32_t i = 0; !rc && i < t->came->pieces; i++) {
        uint64_t left = t->original.size - t->read.offset;
        t->step = MONARCH_STEP_VERIFY;
        rc = decode_piece(d, t, i, buffer, &bytes);
        if (!rc)
            rc = transfer_add(d->transfers, t, bytes,
                              left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    progress_store(d->job->requests, t->order.file, progress_of(t->read.offset));
    return rc;
}

/* put - publishes a frame in its Tier. */
static int put(struct demand *d, struct transfer *t)
{
    int rc = transfer_prepare(d->transfers, t);
    if (!rc && packs_id(d->packs, t->order.tier, t->order.file) != t->frame->id)
        rc = -EINVAL;
    return rc ? rc : packing_publish(d->transfers, t);
}

/* keep - reuses the received frame of a File that was decoded into the Pool, if the File is to be
 * packed here, too. */
static void keep(struct demand *d, struct transfer *t)
{
    struct transfer kept;
    struct monarch_order order;
    if (!table_begin_packing(d->table, t->order.file, &order)) {
        packing_note(d->transfers, t->order.file); /* space may be free later */
        return;
    }
    transfer_init(&kept, &order);
    kept.frame = t->came;
    kept.frame->tier = order.tier;
    t->came = NULL;
    int rc = put(d, &kept);
    if (rc && kept.step == MONARCH_STEP_WRITE)
        report_tier(d->transfers, &kept, order.tier, rc);
    if (rc)
        monarch_table_fail(d->table, &order, REASON_NONE, 0);
    transfer_end(&kept, rc);
}

/* decode_file - writes the plain bytes of a File into a Replica, and publishes it. */
static int decode_file(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_cpu_ns();
    int rc = decode_pieces(d, t, buffer);
    if (rc)
        return rc;
    t->step = MONARCH_STEP_VERIFY;
    if (*t->sum.first != t->came->digest)
        return -EBADMSG;
    table_count(d->table, &(struct monarch_tally){.unpacked_files = 1,
                                                  .unpacked_bytes = t->original.size,
                                                  .unpack_ns = clock_cpu_ns() - began});
    rc = replica_file_verify(t);
    rc = rc ? rc : transfer_publish(d->transfers, t);
    if (!rc)
        keep(d, t);
    return rc;
}

/* store_frame - keeps the frame of a File as it is. */
static int store_frame(struct demand *d, struct transfer *t)
{
    t->frame = t->came;
    t->came = NULL;
    t->leaves_plain = false;
    __atomic_store_n(t->sum.first, t->frame->digest, __ATOMIC_RELAXED);
    return transfer_publish(d->transfers, t);
}

/* ---- Blocks ------------------------------------------------------------------------------ */

/* take_blocks - writes Blocks that were verified, and makes them visible to programs. */
static int take_blocks(struct demand *d, struct transfer *t, struct block_run run,
                       const uint8_t *bytes)
{
    const struct page_run pages = blocks_pages(t->partial, run);
    size_t n = (size_t)blocks_bytes(t->original.size, run.first, run.count);
    int rc = partial_borrow(d->transfers, t, run.first / EXTENT_BLOCKS, false);
    t->step = rc ? t->step : MONARCH_STEP_WRITE;
    uint64_t offset = (uint64_t)run.first * BLOCK_BYTES - t->file.shift;
    rc = rc ? rc : file_write_at(t->file.fd, bytes, n, offset);
    partial_return(t);
    if (rc)
        return rc;
    t->step = MONARCH_STEP_READ;
    table_count_pages(d->table, t->order.peer, n);
    progress_store(d->job->requests, t->order.file, progress_at(run.first + run.count));
    if (partial_arrived(d->partials, t->partial, pages, bytes, t->file.removals)
            .complete)
        partial_hand_complete(d->partials, &t->order, run.first / EXTENT_BLOCKS);
    return 0;
}

/* decode_blocks - decodes the Blocks of the received piece, see take_blocks(). A peer with a
 * damaged piece is asked for plain Blocks from now on: it finds the damage when it decodes them,
 * and fetches them again. */
static int decode_blocks(struct receiver *r, struct transfer *t,
                         const struct frame_request *asked, uint8_t *buffer)
{
    struct demand *d = r->demand;
    size_t n = (size_t)blocks_bytes(t->original.size, asked->first, asked->blocks);
    bool whole = frame_is_extent(d->job->catalog, asked);
    uint64_t began = clock_cpu_ns();
    const uint8_t *bytes;
    int rc = decode_piece(d, t, 0, buffer, &bytes);
    if (rc)
        return rc;
    bytes += (size_t)(asked->first % FRAME_BLOCKS_MAX) * BLOCK_BYTES;
    if (frame_range_digest(whole, bytes, n) != t->came->digest)
        return -EBADMSG;
    table_count(d->table, &(struct monarch_tally){.unpacked_bytes = n,
                                                  .unpack_ns = clock_cpu_ns() - began});
    return take_blocks(d, t, frame_range(asked), bytes);
}

/* ---- replies ----------------------------------------------------------------------------- */

/* accept_frame - checks that the reply is a frame of the range, packed by the requested codec. */
static int accept_frame(struct demand *d, struct fetch *f)
{
    struct transfer *t = &f->transfer;
    struct frame_head expected;
    packs_head(packs_codec(d->packs, f->packing_tier, t->order.file), &expected);
    expected.plain = t->came->plain;
    t->came->id = f->packing;
    t->came->tier = f->packing_tier;
    return frame_accept(t->came, &expected);
}

/* take_frame - keeps or decodes a frame. */
static int take_frame(struct receiver *r, struct fetch *f,
                      const struct frame_request *asked)
{
    struct demand *d = r->demand;
    struct transfer *t = &f->transfer;
    int rc = accept_frame(d, f);
    if (!rc && !t->partial)
        table_count(d->table, &(struct monarch_tally){.came_packed_files = 1});
    if (!rc && !t->partial && packing_applies(d->transfers, t))
        return store_frame(d, t);
    uint8_t *buffer = malloc(PIECE_BYTES);
    if (!rc && !buffer)
        rc = -ENOMEM;
    if (!rc && t->partial)
        rc = decode_blocks(r, t, asked, buffer);
    else if (!rc)
        rc = decode_file(d, t, buffer);
    free(buffer);
    if (rc == -EBADMSG && t->partial)
        t->partial->asks_plain = true;
    frame_free(&t->came);
    return rc;
}

/* begin_extent - prepares for plain bytes of a File. -EAGAIN: they are of a later Replica, which
 * may have other bytes, although each Extent is right. */
static int begin_extent(struct receiver *r, struct fetch *f,
                        const struct frame_reply *head)
{
    struct transfer *t = &f->transfer;
    if (f->replica && head->replica && f->replica != head->replica)
        return -EAGAIN;
    f->replica = head->replica ? head->replica : f->replica;
    bool created = t->file.fd >= 0 || t->frame;
    return created ? 0 : replica_file_create(r->demand->transfers, t);
}

/* begin_frame - prepares for the bytes of a frame. */
static int begin_frame(struct transfer *t, const struct coming *in)
{
    const struct block_run pieces = frame_pieces_range(&in->of->request);
    uint64_t plain = blocks_bytes(t->original.size, pieces.first, pieces.count);
    return frame_new_expected(plain, in->head.size, &t->came);
}

/* fetched_begin - prepares for the bytes of a reply. -EPROTO: it is not for the next Extent of a
 * File; -ESTALE: the File is marked *written*; -EAGAIN: see begin_extent(); else the temporary file
 * cannot be created. */
int fetched_begin(struct receiver *r, struct fetch *f, const struct coming *in)
{
    struct transfer *t = &f->transfer;
    struct transfers *ts = r->demand->transfers;
    const struct frame_reply *head = &in->head;
    const struct range_name name = frame_sealed_name(&in->of->request, head);
    if (!t->partial && head->first != f->came)
        return -EPROTO;
    if (transfer_written(ts, t)) {
        t->step = MONARCH_STEP_ORDER; /* no failure of the peer */
        return -ESTALE;
    }
    if (!f->came)
        t->from = head->ready ? SOURCE_PEER : SOURCE_NONE;
    int rc = 0;
    if (head->packed)
        rc = begin_frame(t, in);
    else if (!t->partial)
        rc = begin_extent(r, f, head);
    struct sealer *sealer = r->options.sealed ? ts->sealer : NULL;
    return rc ? rc : sum_begin(&t->sum, sealer, &name, &head->seal);
}

/* fetched_add - adds the next bytes: chunks of CHUNK_BYTES, except for the last one of a reply. A
 * plain reply with Blocks is one chunk, which is written after it was verified. */
int fetched_add(struct receiver *r, struct fetch *f, const uint8_t *bytes, size_t n)
{
    struct transfer *t = &f->transfer;
    struct transfers *ts = r->demand->transfers;
    bool is_file = !t->partial && !t->came;
    t->spent.bytes += n;
    int rc = is_file ? extent_add(ts, t, bytes, n) : sum_add(&t->sum, bytes, n);
    if (!rc && t->came)
        return frame_put(t->came, bytes, n);
    if (rc || !is_file)
        return rc;
    rc = replica_file_write(ts, t, bytes, n);
    t->read.offset += rc ? 0 : n;
    progress_store(r->demand->job->requests, t->order.file,
                   progress_of(t->read.offset));
    return rc;
}

/* is_right - a node of the job has sent these bytes as this range. */
static bool is_right(const struct receiver *r, const struct transfer *t,
                     const struct frame_reply *head)
{
    if (r->options.sealed)
        return seal_same(t->sum.seal.tag, head->seal.tag);
    return t->sum.chain == head->digest;
}

/* take - stores the bytes of a reply if they are right. */
static int take(struct receiver *r, struct fetch *f, const struct coming *in,
                const uint8_t *last)
{
    struct transfer *t = &f->transfer;
    const struct frame_request *asked = &in->of->request;
    t->step = MONARCH_STEP_VERIFY;
    int rc = sum_end(&t->sum);
    if (rc)
        return rc;
    if (!is_right(r, t, &in->head))
        return -EBADMSG;
    if (in->head.packed)
        return take_frame(r, f, asked);
    if (t->partial)
        return take_blocks(r->demand, t, frame_range(asked), last);
    extent_store(r->demand->transfers, t);
    return 0;
}

/* publish - publishes a File after all its plain bytes have arrived. */
static int publish(struct demand *d, struct transfer *t)
{
    int rc = replica_file_verify(t);
    rc = rc ? rc : transfer_publish(d->transfers, t);
    if (packing_has_pending(d->transfers))
        job_ring(d->job);
    return rc;
}

/* fetched_end - ends a reply, whose last chunk is passed. 1: it was the last reply, and the File is
 * published if all of it was fetched. -EBADMSG: the bytes were changed on the way, no node of the
 * job has staged them, or they are damaged on the peer. */
int fetched_end(struct receiver *r, struct fetch *f, const struct coming *in,
                const uint8_t *last)
{
    struct transfer *t = &f->transfer;
    int rc = take(r, f, in, last);
    if (rc == -EBADMSG && t->step == MONARCH_STEP_VERIFY)
        traffic_add(&r->traffic[t->order.peer].corrupt, 1);
    if (rc)
        return rc;
    f->came += in->of->request.blocks;
    if (f->came == f->all.count && !t->partial && !in->head.packed)
        rc = publish(r->demand, t);
    else
        t->step = MONARCH_STEP_READ;
    return rc ? rc : f->came == f->all.count;
}
