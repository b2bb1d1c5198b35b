/* peer_client_fetch.c - the Source "peer": a Transfer requests a File, or claimed Blocks of a large
 * one, and ends; and the queue of the results for Python.
 *
 * If a peer does not send a File, Python decides how to continue. For Blocks, the next source is
 * tried, and at last the origin; that is reported to Python, which does not decide: programs wait
 * for some Blocks only.
 */
#include "dataplane/peers/peer_client.h"

#include <errno.h>

#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"

/* ---- begin ------------------------------------------------------------------------------- */

/* enter - begins to use the partial Replica of an order for Blocks. */
static int enter(struct receiver *r, struct fetch *f)
{
    struct transfer *t = &f->transfer;
    int rc = partial_enter(r->demand->partials, &t->order, &t->partial);
    if (rc)
        return rc;
    table_busy(r->demand->table, true);
    f->all = pages_blocks((struct page_run){t->order.first_page, t->order.page_count});
    return 0;
}

/* fetch_begin - begins a fetch; returns 0, or the error of the File or the Tier, see
 * transfer_prepare(). -ECANCELED or -EAGAIN: the partial Replica has ended. */
int fetch_begin(struct receiver *r, struct fetch *f, const struct monarch_order *order,
                uint64_t now)
{
    struct demand *d = r->demand;
    struct transfer *t = &f->transfer;
    *f = (struct fetch){.used = true, .began_ns = now, .progress_ns = now};
    transfer_init(t, order);
    int rc = order->page_count ? enter(r, f) : 0;
    rc = rc ? rc : transfer_prepare(d->transfers, t);
    if (rc)
        return rc;
    t->step = MONARCH_STEP_READ;
    t->leaves_plain = !t->partial;
    if (!t->partial)
        f->all.count = t->original.size ? blocks_of(t->original.size) : 1;
    if (!t->partial || !t->partial->asks_plain)
        f->packing = packing_wanted(d->transfers, t, &f->packing_tier);
    f->next = f->all.first;
    return 0;
}

/* ---- requests ---------------------------------------------------------------------------- */

/* fetch_has_requests - some Blocks are not requested yet. */
bool fetch_has_requests(const struct fetch *f)
{
    return f->next < f->all.first + f->all.count;
}

/* fetch_request - makes the next request: for an Extent of a File, or a few Blocks, by the pieces
 * of a frame if they may arrive packed. */
struct frame_request fetch_request(struct receiver *r, struct fetch *f, uint64_t id)
{
    const struct monarch_order *order = &f->transfer.order;
    uint32_t left = f->all.first + f->all.count - f->next;
    uint32_t extent = EXTENT_BLOCKS - f->next % EXTENT_BLOCKS;
    uint32_t into = f->packing ? f->next % FRAME_BLOCKS_MAX : 0;
    uint32_t most = f->transfer.partial ? FRAME_BLOCKS_MAX - into : extent;
    bool hinted = order->kind & MONARCH_HINT && !f->transfer.partial;
    bool unasked = order->kind & MONARCH_BACKGROUND && !hinted;
    const struct block_run range = {f->next, left < most ? left : most};
    struct frame_request request = frame_request_make(r->demand->job->catalog, id,
                                                      order->file, range);
    request.wanted = (uint8_t)(left < extent ? left : extent);
    request.flags = unasked && !f->wanted ? FRAME_UNASKED : 0;
    request.flags |= f->transfer.partial ? 0 : FRAME_WHOLE;
    request.packing = f->packing;
    f->next += range.count;
    return request;
}

/* fetch_want - returns a frame that raises a request of fill to one that programs wait for. */
struct frame_request fetch_want(const struct receiver *r, const struct fetch *f)
{
    const struct block_run range = {f->all.first, 1};
    struct frame_request request = frame_request_make(r->demand->job->catalog, 0,
                                                      f->transfer.order.file, range);
    request.wanted = (uint8_t)f->all.count;
    request.flags = FRAME_WANTED;
    return request;
}

/* ---- the end of Blocks ------------------------------------------------------------------- */

/* is_own - this node has failed, or the File has changed. */
static bool is_own(const struct transfer *t, int status)
{
    return status != -EBADMSG && t->step != MONARCH_STEP_READ;
}

/* next_source - returns the next source to try; none after a late peer, as programs would wait as
 * long for another one. */
static uint8_t next_source(const struct monarch_order *order, int status)
{
    bool late = status == -ETIMEDOUT || status == -EAGAIN;
    return late ? SOURCES_MAX : (uint8_t)(order->tried + 1);
}

/* was_damaged - the peer has sent a damaged piece. It is asked for plain Blocks: it finds the
 * damage when it decodes them, and fetches them again. */
static bool was_damaged(const struct fetch *f, int status)
{
    return status == -EBADMSG && f->packing && f->transfer.partial->asks_plain;
}

/* is_needless - no program runs on this node, and the connection has ended: when the job ends,
 * nodes leave before all prefetched Files have arrived. Waiting programs of other nodes request
 * again, which ends with -ENOTCONN if the peer is still in the table. */
static bool is_needless(struct demand *d, int status)
{
    return (status == -ECONNRESET || status == -ECANCELED) && fill_paused(d);
}

/* go_on - passes the claimed Blocks that have not arrived to the next source; releases those that
 * were for fill, or are needless. */
static void go_on(struct demand *d, struct partial *p, const struct monarch_order *from,
                  int status, uint8_t next)
{
    bool leaves = (from->kind & MONARCH_BACKGROUND) || is_needless(d, status);
    struct page_run whole = {from->first_page, from->page_count};
    struct page_run runs[EXTENT_BLOCKS];
    uint32_t n = partial_still_claimed(d->partials, p, whole, runs);
    for (uint32_t i = 0; i < n; i++) {
        struct monarch_order order = *from;
        order.first_page = runs[i].first;
        order.page_count = runs[i].count;
        order.tried = next;
        if (leaves || !partial_hand(d->partials, &order))
            partial_unclaim(d->partials, p, runs[i], false);
    }
    if (leaves && status == -EAGAIN) /* the peer will have it */
        partial_postpone(d->partials, p);
    else if (leaves)
        partial_abandon(d->partials, p);
}

/* fail - gives up the partial Replica; false: that was reported already. */
static bool fail(struct demand *d, struct partial *p, const struct monarch_order *from,
                 int status)
{
    struct page_run whole = {from->first_page, from->page_count};
    struct page_run runs[EXTENT_BLOCKS];
    uint32_t n = partial_still_claimed(d->partials, p, whole, runs);
    for (uint32_t i = 0; i < n; i++)
        partial_unclaim(d->partials, p, runs[i], true);
    return partial_end(d->partials, p, status);
}

/* fill_on - continues fill with a File whose Blocks have arrived. */
static void fill_on(struct demand *d, uint32_t file)
{
    partial_resume(d->partials, file);
    pthread_mutex_lock(&d->transfers->lock);
    scheduler_call(d->transfers);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* end_blocks - ends an order for Blocks; returns the status for Python. */
static int end_blocks(struct demand *d, struct fetch *f, int status)
{
    struct transfer *t = &f->transfer;
    struct partial *p = t->partial;
    partial_return(t);
    if (!p) /* the File has ended before */
        return 0;
    table_busy(d->table, false);
    if (status && is_own(t, status))
        status = fail(d, p, &t->order, status) ? status : 0;
    else if (status)
        go_on(d, p, &t->order, status,
              was_damaged(f, status) ? t->order.tried : next_source(&t->order, status));
    partial_leave(d->partials, p, false);
    if (!status && (t->order.kind & MONARCH_BACKGROUND))
        fill_on(d, t->order.file);
    return status;
}

/* refuse_blocks - end_blocks() for an order that has not begun. */
static void refuse_blocks(struct demand *d, const struct monarch_order *order,
                          int status)
{
    struct partial *p;
    if (partial_enter(d->partials, order, &p))
        return;
    go_on(d, p, order, status, next_source(order, status));
    partial_leave(d->partials, p, false);
}

/* ---- arrivals ------------------------------------------------------------------------------ */

/* arrivals_signal - makes event_fd readable if Python has arrivals to collect: with `all` any, else
 * a batch or a failure. Programs have been woken already. Under the lock of the receiver. */
void arrivals_signal(struct receiver *r, bool all)
{
    bool worth = all || r->failed || r->done.count >= DONE_BATCH;
    if (!r->done.count)
        event_fd_set(&r->event_fd, false);
    else if (worth)
        event_fd_set(&r->event_fd, true);
}

/* fetch_background_bytes - returns the bytes that an order of fill adds to those in flight. */
uint64_t fetch_background_bytes(const struct receiver *r, uint8_t kind, uint32_t file,
                                uint32_t pages)
{
    const struct table *t = r->demand->table;
    if (!t || !(kind & MONARCH_BACKGROUND) || file >= t->options.files)
        return 0;
    return pages ? (uint64_t)pages * PAGE_BYTES : t->options.sizes[file];
}

/* fetch_set_pending - notes if the peer has acknowledged a request and not begun its reply. Blocks
 * of fill that it must read first do not use the connections yet: others are requested
 * meanwhile. */
void fetch_set_pending(struct receiver *r, struct fetch *f, bool pending)
{
    const struct monarch_order *order = &f->transfer.order;
    bool counts = order->page_count && pending != f->pending;
    f->pending = pending;
    if (!counts)
        return;
    uint64_t bytes = fetch_background_bytes(r, order->kind, order->file,
                                            order->page_count);
    pthread_mutex_lock(&r->lock);
    r->waiting_bytes += pending ? bytes : -bytes;
    pthread_mutex_unlock(&r->lock);
}

/* push_arrival - ends an order, and reports failures and requested results to Python. */
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

/* fetch_end - ends the Transfer and queues its arrival; its place is free after all its requests
 * have had their replies. */
void fetch_end(struct receiver *r, struct fetch *f, int status)
{
    bool goes_on = status && f->transfer.order.page_count &&
                   !is_own(&f->transfer, status);
    if (f->transfer.order.page_count)
        status = end_blocks(r->demand, f, status);
    fetch_set_pending(r, f, false);
    transfer_end(&f->transfer, status);
    f->transfer.completion.alone = goes_on;
    f->ended = true;
    f->used = f->open > 0;
    f->transfer.completion.ns = clock_ns() - f->began_ns;
    push_arrival(r, &f->transfer.completion);
}

/* fetch_refuse - ends an order that has not begun. */
void fetch_refuse(struct receiver *r, const struct monarch_order *order, int status)
{
    struct transfer never;
    transfer_init(&never, order);
    never.step = MONARCH_STEP_READ;
    if (order->page_count)
        refuse_blocks(r->demand, order, status);
    transfer_end(&never, status);
    never.completion.alone = order->page_count > 0;
    push_arrival(r, &never.completion);
}

/* monarch_receiver_event_fd - returns an fd, readable while arrivals wait; the client drains it. */
int monarch_receiver_event_fd(const struct receiver *r)
{
    return r->event_fd.fd;
}

/* monarch_receiver_arrivals - collects up to `max` arrivals. */
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
