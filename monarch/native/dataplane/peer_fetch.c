/* peer_fetch.c - one File on its way from a peer into a Tier: the same steps as a copy of the
 * origin, with the peer's checksum and seal in place of the origin's identity. */
#include "dataplane/flight.h"

#include <errno.h>

#include "dataplane/clock.h"
#include "dataplane/extent.h"
#include "dataplane/traffic.h"

/* flight_begin - 0, or why the File cannot be fetched into this Tier. */
int flight_begin(struct receiver *r, struct flight *f,
                 const struct monarch_fetch *order, uint64_t now)
{
    *f = (struct flight){
        .order = *order, .used = true, .began_ns = now, .moved_ns = now};
    transfer_init(&f->transfer, &(struct monarch_order){.file = order->file,
                                                        .tier = order->tier,
                                                        .kind = MONARCH_DEMAND});
    int rc = transfer_prepare(r->engine, &f->transfer);
    if (rc)
        return rc;
    f->transfer.step = MONARCH_STEP_READ;
    f->extents = (uint32_t)frame_extents(f->transfer.size);
    return 0;
}

/* flight_extent - an Extent is about to come: -EPROTO unless it is the next one; -ESTALE:
 * the File is marked written; another -errno: the file for it cannot be made. */
int flight_extent(struct receiver *r, struct flight *f, const struct frame_reply *head)
{
    if (head->extent != f->landed)
        return -EPROTO;
    if (transfer_written(r->engine, &f->transfer)) {
        f->transfer.step = MONARCH_STEP_ORDER; /* nothing is wrong with the peer */
        return -ESTALE;
    }
    if (!head->extent)
        f->transfer.from = head->ready ? SOURCE_PEER : SOURCE_NONE;
    int rc = f->transfer.target < 0 ? copy_create(r->engine, &f->transfer) : 0;
    if (!rc && r->options.sealed)
        rc = extent_begin(r->engine, &f->transfer, &head->seal);
    return rc;
}

/* flight_chunk - takes in the next bytes: whole chunks of CHUNK_BYTES, but for the last
 * of an Extent. */
int flight_chunk(struct receiver *r, struct flight *f, const uint8_t *bytes, size_t n)
{
    struct transfer *t = &f->transfer;
    t->bytes += n;
    int rc = extent_add(r->engine, t, bytes, n);
    rc = rc ? rc : copy_write(t, bytes, n);
    t->offset += rc ? 0 : n;
    return rc;
}

/* is_right - these are the bytes that a node of the job has staged as this Extent. */
static bool is_right(const struct receiver *r, const struct transfer *t,
                     const struct frame_reply *head)
{
    if (r->options.sealed)
        return seal_same(t->seal.tag, head->seal.tag);
    return t->chain == head->digest;
}

/* flight_landed - an Extent is there. 0, or with the last one 1: the File is published.
 * -EBADMSG: its bytes were changed on their way, or never were a node's of this job. */
int flight_landed(struct receiver *r, struct flight *f, const struct frame_reply *head)
{
    struct transfer *t = &f->transfer;
    t->step = MONARCH_STEP_VERIFY;
    int rc = extent_end(t);
    if (rc)
        return rc;
    if (!is_right(r, t, head)) {
        traffic_add(&r->traffic[f->order.peer].corrupt, 1);
        return -EBADMSG;
    }
    extent_keep(r->engine, t);
    t->step = MONARCH_STEP_READ;
    if (++f->landed < f->extents)
        return 0;
    rc = copy_verify(t);
    rc = rc ? rc : transfer_publish(r->engine, t);
    return rc ? rc : 1;
}

/* flight_end - releases what it holds and tells Python; requests that are still open keep
 * its place taken. */
void flight_end(struct receiver *r, struct flight *f, int status)
{
    transfer_end(&f->transfer, status);
    f->ended = true;
    f->used = f->open > 0;
    receive_done(r, &(struct monarch_arrival){.file = f->order.file,
                                              .tier = f->order.tier,
                                              .step = f->transfer.step,
                                              .peer = f->order.peer,
                                              .status = status,
                                              .bytes = f->transfer.bytes,
                                              .ns = clock_ns() - f->began_ns});
}
