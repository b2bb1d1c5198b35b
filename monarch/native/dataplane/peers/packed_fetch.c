/* packed_fetch.c - Files that peers send packed. A node that keeps such a File packed stores
 * its frame as it came; any other decodes it.
 *
 * A frame that a peer has sealed is as the peer had it. Whether that is right, the checksum of
 * the plain bytes tells when they are decoded: at once, or when a program opens the File.
 */
#include "dataplane/peers/peer_client.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/extents/table.h"
#include "dataplane/media/packed_seal.h"
#include "dataplane/transfers/packing.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

/* packed_fetch_request - makes the request for an Extent one that a frame answers, too. */
void packed_fetch_request(const struct fetch *f, struct frame_request *out)
{
    bool unasked = f->order.kind & MONARCH_BACKGROUND &&
                   !(f->order.kind & MONARCH_HINT);
    out->kind = FRAME_PACKED;
    out->extent = 0;
    out->packing = f->packing;
    out->flags = unasked ? FRAME_UNASKED : 0;
}

/* packed_fetch_begin - prepares for the bytes of a frame. */
int packed_fetch_begin(struct fetch *f, const struct frame_reply *head)
{
    return frame_new_to_come(f->transfer.original.size, head->size, &f->transfer.came);
}

/* packed_fetch_add - takes the next bytes. */
int packed_fetch_add(struct fetch *f, const uint8_t *bytes, size_t n)
{
    f->transfer.spent.bytes += n;
    return frame_put(f->transfer.came, bytes, n);
}

/* fetch_check - -EBADMSG unless the bytes are those that a node of the job has sent under this
 * name. */
int fetch_check(const struct receiver *r, const struct extent_name *name,
                const uint8_t *bytes, const struct frame_reply *head)
{
    struct monarch_seal seal = head->seal;
    if (!r->options.sealed)
        return xxh3(bytes, name->bytes, 0) == head->digest ? 0 : -EBADMSG;
    int rc = seal_make(r->demand->transfers->sealer, name, bytes, &seal);
    if (rc)
        return rc;
    return seal_same(seal.tag, head->seal.tag) ? 0 : -EBADMSG;
}

/* accept - the bytes are a frame of the File, by a codec that this node has. */
static int accept_frame(struct receiver *r, struct fetch *f,
                        const struct frame_reply *head)
{
    struct transfer *t = &f->transfer;
    const struct extent_name name = packed_seal_name(f->order.file, f->packing,
                                                     t->came->used);
    int rc = fetch_check(r, &name, t->came->bytes, head);
    if (rc)
        return rc;
    t->came->id = f->packing;
    t->came->tier = f->packing_tier;
    const struct frame_head expected = packing_head(r->demand->transfers, t,
                                                    t->came->tier);
    return frame_accept(t->came, &expected);
}

/* store - keeps the frame as it is. */
static int store(struct demand *d, struct transfer *t)
{
    t->frame = t->came;
    t->came = NULL;
    t->leaves_plain = false;
    __atomic_store_n(t->sum.first, t->frame->digest, __ATOMIC_RELAXED);
    return transfer_publish(d->transfers, t);
}

/* decode_piece - the next one, into the buffer, and on to the Replica. */
static int decode_piece(struct demand *d, struct transfer *t, uint32_t number,
                        size_t at, uint8_t *buffer)
{
    const struct frame *came = t->came;
    uint64_t left = t->original.size - t->read.offset;
    size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    uint32_t length = frame_length(came, number);
    const struct packed_piece piece = {packs_codec(d->packs, came->tier, t->order.file),
                                       came->bytes + at, length & ~FRAME_RAW};
    if (length & FRAME_RAW)
        return transfer_add(d->transfers, t, piece.bytes, n);
    t->step = MONARCH_STEP_VERIFY;
    int rc = packing_decode(d->transfers, &piece, buffer, n);
    return rc ? rc : transfer_add(d->transfers, t, buffer, n);
}

/* put - puts a frame into its Tier. */
static int put(struct demand *d, struct transfer *t)
{
    int rc = transfer_prepare(d->transfers, t);
    if (!rc && packs_id(d->packs, t->order.tier, t->order.file) != t->frame->id)
        rc = -EINVAL;
    return rc ? rc : packing_publish(d->transfers, t);
}

/* keep - a File that has come packed is in the Pool now: if it is to be packed, too, that is
 * its frame. */
static void keep(struct demand *d, struct transfer *t)
{
    struct transfer kept;
    struct monarch_order order;
    if (!table_begin_packing(d->table, t->order.file, &order)) {
        packing_note(d->transfers, t->order.file); /* it may have room later */
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

static int decode_pieces(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    size_t at = frame_least_bytes(t->original.size);
    int rc = replica_file_create(d->transfers, t);
    for (uint32_t i = 0; !rc && i < t->came->pieces; i++) {
        rc = decode_piece(d, t, i, at, buffer);
        at += frame_length(t->came, i) & ~FRAME_RAW;
    }
    progress_store(d->job->requests, t->order.file, progress_of(t->read.offset));
    return rc;
}

/* decode - writes the plain bytes into a Replica, and publishes it. */
static int decode(struct demand *d, struct transfer *t)
{
    uint64_t began = clock_cpu_ns();
    uint8_t *buffer = malloc(PIECE_BYTES);
    int rc = buffer ? decode_pieces(d, t, buffer) : -ENOMEM;
    free(buffer);
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

/* packed_fetch_end - verifies a frame, keeps or decodes it and publishes the File: 1.
 * -EBADMSG: it was changed on the way, or the peer has it so. */
int packed_fetch_end(struct receiver *r, struct fetch *f,
                     const struct frame_reply *head)
{
    struct demand *d = r->demand;
    struct transfer *t = &f->transfer;
    t->step = MONARCH_STEP_VERIFY;
    int rc = accept_frame(r, f, head);
    if (!rc) {
        table_count(d->table, &(struct monarch_tally){.came_packed_files = 1});
        rc = packing_applies(d->transfers, t) ? store(d, t) : decode(d, t);
    }
    if (rc == -EBADMSG && t->step == MONARCH_STEP_VERIFY)
        traffic_add(&r->traffic[f->order.peer].corrupt, 1);
    return rc ? rc : 1;
}
