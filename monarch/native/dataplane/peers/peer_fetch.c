/* peer_fetch.c - the Transfer of one File from a peer into a Tier, and the queue of its
 * results for Python. The steps are those of a copy of the origin, with the checksum
 * and seal of the peer instead of the identity of the origin.
 */
#include "dataplane/peers/peer_client.h"

#include <errno.h>

#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/progress.h"

/* fetch_begin - 0, or the error of the File or the Tier, see transfer_prepare(). */
int fetch_begin(struct receiver *r, struct fetch *f, const struct monarch_order *order,
                uint64_t now)
{
    *f = (struct fetch){
        .order = *order, .used = true, .began_ns = now, .progress_ns = now};
    transfer_init(&f->transfer, order);
    if (order->page_count)
        return block_fetch_begin(r, f);
    int rc = transfer_prepare(r->demand->transfers, &f->transfer);
    if (rc)
        return rc;
    f->transfer.step = MONARCH_STEP_READ;
    f->transfer.leaves_plain = true;
    f->extents = (uint32_t)extents_of(f->transfer.original.size);
    f->packing = packing_wanted(r->demand->transfers, &f->transfer, &f->packing_tier);
    return 0;
}

/* fetch_extent_begin - prepares for the bytes of an Extent. -EPROTO: it is not the next
 * one; -ESTALE: the File is marked *written*; else the temporary file cannot be
 * created. */
int fetch_extent_begin(struct receiver *r, struct fetch *f,
                       const struct frame_reply *head)
{
    bool blocks = f->order.page_count > 0;
    if (!blocks && !f->packing && head->extent != f->received)
        return -EPROTO;
    if (transfer_written(r->demand->transfers, &f->transfer)) {
        f->transfer.step = MONARCH_STEP_ORDER; /* no failure of the peer */
        return -ESTALE;
    }
    if (blocks)
        return 0;
    if (!f->received)
        f->transfer.from = head->ready ? SOURCE_PEER : SOURCE_NONE;
    if (head->packed)
        return packed_fetch_begin(f, head);
    bool created = f->transfer.file.fd >= 0 || f->transfer.frame;
    int rc = created ? 0 : replica_file_create(r->demand->transfers, &f->transfer);
    if (!rc && r->options.sealed)
        rc = extent_begin(r->demand->transfers, &f->transfer, &head->seal);
    return rc;
}

/* fetch_add - writes the next bytes: chunks of CHUNK_BYTES, but for the last one of an
 * Extent. A reply with Blocks is one chunk. */
int fetch_add(struct receiver *r, struct fetch *f, const struct frame_reply *head,
              const uint8_t *bytes, size_t n)
{
    struct transfer *t = &f->transfer;
    if (f->order.page_count)
        return block_fetch_add(r, f, head, bytes);
    if (t->came)
        return packed_fetch_add(f, bytes, n);
    t->spent.bytes += n;
    int rc = extent_add(r->demand->transfers, t, bytes, n);
    rc = rc ? rc : replica_file_write(r->demand->transfers, t, bytes, n);
    t->read.offset += rc ? 0 : n;
    progress_store(r->demand->job->requests, t->order.file,
                   progress_of(t->read.offset));
    return rc;
}

/* is_correct - a node of the job has staged these bytes as this Extent. */
static bool is_correct(const struct receiver *r, const struct transfer *t,
                       const struct frame_reply *head)
{
    if (r->options.sealed)
        return seal_same(t->sum.seal.tag, head->seal.tag);
    return t->sum.chain == head->digest;
}

/* fetch_extent_end - verifies an Extent. 1: it was the last one and the File is
 * published, or they were the last Blocks. -EBADMSG: the bytes were changed on the way, or no node of the job has
 * staged them. */
int fetch_extent_end(struct receiver *r, struct fetch *f,
                     const struct frame_reply *head)
{
    struct transfer *t = &f->transfer;
    if (f->order.page_count)
        return ++f->received == f->extents;
    if (t->came)
        return packed_fetch_end(r, f, head);
    t->step = MONARCH_STEP_VERIFY;
    int rc = extent_end(t);
    if (rc)
        return rc;
    if (!is_correct(r, t, head)) {
        traffic_add(&r->traffic[f->order.peer].corrupt, 1);
        return -EBADMSG;
    }
    extent_store(r->demand->transfers, t);
    t->step = MONARCH_STEP_READ;
    if (++f->received < f->extents)
        return 0;
    rc = replica_file_verify(t);
    rc = rc ? rc : transfer_publish(r->demand->transfers, t);
    if (packing_waits(r->demand->transfers))
        job_ring(r->demand->job);
    return rc ? rc : 1;
}

/* arrivals_signal - makes event_fd readable if Python has arrivals to collect: `all`,
 * or a batch or a failure. Programs have been woken already. Under the lock of the
 * receiver. */
void arrivals_signal(struct receiver *r, bool all)
{
    bool worth = all || r->failed || r->done.count >= DONE_BATCH;
    if (!r->done.count)
        event_fd_set(&r->event_fd, false);
    else if (worth)
        event_fd_set(&r->event_fd, true);
}

/* fetch_background_bytes - what an order of fill counts among those under way. */
uint64_t fetch_background_bytes(const struct receiver *r, uint8_t kind, uint32_t file,
                                uint32_t pages)
{
    const struct table *t = r->demand->table;
    if (!t || !(kind & MONARCH_BACKGROUND) || file >= t->options.files)
        return 0;
    return pages ? (uint64_t)pages * PAGE_BYTES : t->options.sizes[file];
}

/* push_arrival - Python hears of failures, and of what is to be reported. */
static void push_arrival(struct receiver *r, const struct monarch_completion *arrival)
{
    struct client_thread *t = client_thread_of(r, arrival->peer);
    bool heard = arrival->status || order_reported(r->demand->transfers, arrival->kind);
    t->running--;
    if (r->demand->table)
        table_count(r->demand->table,
                    &(struct monarch_tally){.transfer_ns = arrival->ns});
    pthread_mutex_lock(&r->lock);
    r->background -= arrival->kind & MONARCH_BACKGROUND;
    r->background_bytes -= fetch_background_bytes(r, arrival->kind, arrival->file,
                                                  arrival->pages);
    r->failed = r->failed || arrival->status;
    if (heard)
        ring_push(&r->done, arrival); /* has room for all outstanding orders */
    else
        r->outstanding--;
    arrivals_signal(r, t->running == 0);
    pthread_mutex_unlock(&r->lock);
}

/* fetch_end - ends the Transfer and queues its arrival; its place is free when all its
 * requests have had their replies. */
void fetch_end(struct receiver *r, struct fetch *f, int status)
{
    if (f->order.page_count)
        status = block_fetch_end(r, f, status);
    transfer_end(&f->transfer, status);
    f->ended = true;
    f->used = f->open > 0;
    f->transfer.completion.ns = clock_ns() - f->began_ns;
    push_arrival(r, &f->transfer.completion);
}

/* fetch_refuse - ends an order that has not begun. */
void fetch_refuse(struct receiver *r, const struct monarch_order *order, int status)
{
    if (order->page_count)
        block_fetch_refuse(r, order, status);
    push_arrival(r, &(struct monarch_completion){.file = order->file,
                                                 .tier = order->tier,
                                                 .kind = order->kind,
                                                 .step = MONARCH_STEP_READ,
                                                 .peer = order->peer,
                                                 .word = order->word,
                                                 .status = status,
                                                 .pages = order->page_count,
                                                 .ended_ns = clock_ns()});
}

/* monarch_receiver_event_fd - readable while arrivals wait; the receiver empties it. */
int monarch_receiver_event_fd(const struct receiver *r)
{
    return r->event_fd.fd;
}

/* monarch_receiver_arrivals - collects up to `max` orders that have ended. */
uint32_t monarch_receiver_arrivals(struct receiver *r, struct monarch_completion *out,
                                   uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&r->lock);
    while (n < max && ring_pop(&r->done, &out[n]))
        n++;
    r->outstanding -= n;
    r->failed = r->failed && r->done.count;
    arrivals_signal(r, r->event_fd.readable);
    pthread_mutex_unlock(&r->lock);
    return n;
}
