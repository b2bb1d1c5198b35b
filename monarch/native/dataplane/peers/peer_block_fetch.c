/* peer_block_fetch.c - the Transfer of Blocks of a large File from a peer, which has claimed
 * them: a request for each piece, whose replies may come in any order.
 *
 * What a peer does not give, the next source is asked for, and at last the origin. Python
 * hears of it, but does not decide: programs wait for some Blocks only.
 */
#include "dataplane/peers/peer_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/packed_seal.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

static struct block_run blocks_of_order(const struct monarch_order *order)
{
    return pages_blocks((struct page_run){order->first_page, order->page_count});
}

/* begin_of - the first Block of piece `number` of an order. What may come packed is asked for
 * by the pieces of a frame. */
static uint32_t begin_of(const struct fetch *f, uint32_t number)
{
    uint32_t first = blocks_of_order(&f->transfer.order).first;
    uint32_t into = f->packing ? first % FRAME_BLOCKS_MAX : 0;
    return number ? first - into + number * FRAME_BLOCKS_MAX : first;
}

/* run_of - the Blocks of a piece that begins with this one. */
static struct block_run run_of(const struct fetch *f, uint32_t first)
{
    const struct block_run all = blocks_of_order(&f->transfer.order);
    uint32_t left = all.first + all.count - first;
    uint32_t most = FRAME_BLOCKS_MAX - (f->packing ? first % FRAME_BLOCKS_MAX : 0);
    return (struct block_run){first, left < most ? left : most};
}

static uint32_t count_pieces(const struct fetch *f)
{
    const struct block_run all = blocks_of_order(&f->transfer.order);
    uint32_t number = 1;
    while (begin_of(f, number) < all.first + all.count)
        number++;
    return number;
}

/* block_fetch_begin - -ECANCELED or -EAGAIN: the partial Replica has ended; else see
 * transfer_prepare(). */
int block_fetch_begin(struct receiver *r, struct fetch *f)
{
    struct transfer *t = &f->transfer;
    int rc = partial_enter(r->demand->partials, &t->order, &t->partial);
    if (rc)
        return rc;
    table_busy(r->demand->table, true);
    rc = transfer_prepare(r->demand->transfers, t);
    t->step = rc ? t->step : MONARCH_STEP_READ;
    if (!t->partial->asks_plain)
        f->packing = packing_wanted(r->demand->transfers, t, &f->packing_tier);
    f->extents = count_pieces(f);
    return rc;
}

/* block_fetch_request - the request for piece `number`. */
void block_fetch_request(const struct fetch *f, uint32_t number,
                         struct frame_request *out)
{
    const struct monarch_order *order = &f->transfer.order;
    const struct block_run all = blocks_of_order(order);
    uint32_t first = begin_of(f, number);
    out->kind = FRAME_BLOCKS;
    out->extent = first;
    out->blocks = (uint8_t)run_of(f, first).count;
    out->wanted = (uint8_t)(all.first + all.count - first);
    bool unasked = order->kind & MONARCH_BACKGROUND && !f->wanted;
    out->flags = unasked ? FRAME_UNASKED : 0;
    out->packing = f->packing;
}

/* block_fetch_want - tells the peer that programs wait for what fill has requested. */
struct frame_request block_fetch_want(const struct receiver *r, const struct fetch *f)
{
    const struct monarch_order *order = &f->transfer.order;
    const struct block_run all = blocks_of_order(order);
    struct frame_request request = frame_request_make(r->demand->job->catalog, 0,
                                                      order->file, all.first);
    request.kind = FRAME_WANTED;
    request.blocks = 1;
    request.wanted = (uint8_t)all.count;
    return request;
}

/* check - a node of the job has sent these bytes as these Blocks. */
static int check(const struct receiver *r, const struct fetch *f,
                 const struct frame_reply *head, struct block_run run,
                 const uint8_t *bytes)
{
    struct extent_name name = {head->file, run.first, head->size, run.count};
    if (head->packed)
        name = packed_blocks_name(head->file, run.first, run.count, f->packing,
                                  head->size);
    int rc = fetch_check(r, &name, bytes, head);
    if (rc == -EBADMSG)
        traffic_add(&r->traffic[f->order.peer].corrupt, 1);
    return rc;
}

/* take - writes Blocks that are right, and lets programs read them. */
static int take(struct demand *d, struct fetch *f, struct block_run run,
                const uint8_t *bytes)
{
    struct transfer *t = &f->transfer;
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
    table_count_pages(d->table, f->order.peer, n);
    progress_store(d->job->requests, t->order.file, run.first + run.count);
    if (partial_came(d->partials, t->partial, pages, bytes).complete)
        partial_hand_complete(d->partials, &t->order, run.first / EXTENT_BLOCKS);
    return 0;
}

/* decode - decodes the piece of a reply, behind so many checksums, into a buffer; returns 0 if
 * the Blocks are what had come to the peer, else -EBADMSG. */
static int decode(struct demand *d, const struct fetch *f, struct block_run run,
                  const struct packed_piece *piece, uint8_t *buffer)
{
    uint64_t size = f->transfer.original.size, digests[FRAME_BLOCKS_MAX];
    size_t front = run.count * sizeof(*digests);
    uint32_t into = run.first % FRAME_BLOCKS_MAX, begin = run.first - into;
    size_t n = (size_t)blocks_bytes(size, begin, FRAME_BLOCKS_MAX);
    uint64_t began = clock_cpu_ns();
    int rc = packing_decode(d->transfers, piece, buffer, n);
    if (rc)
        return rc;
    n = (size_t)blocks_bytes(size, run.first, run.count);
    blocks_digest(buffer + (size_t)into * BLOCK_BYTES, n, digests);
    if (memcmp(digests, piece->bytes - front, front) != 0)
        return -EBADMSG;
    table_count(d->table, &(struct monarch_tally){.unpacked_bytes = n,
                                                  .unpack_ns = clock_cpu_ns() - began});
    return 0;
}

/* take_packed - the same of Blocks that have come packed. */
static int take_packed(struct receiver *r, struct fetch *f, struct block_run run,
                       const uint8_t *bytes, size_t n)
{
    size_t front = run.count * sizeof(uint64_t);
    const struct packed_piece piece = {
        packs_codec(r->demand->packs, f->packing_tier, f->transfer.order.file),
        bytes + front, n - front};
    uint8_t *buffer = malloc(PIECE_BYTES);
    int rc = buffer ? decode(r->demand, f, run, &piece, buffer) : -ENOMEM;
    if (rc == -EBADMSG) {
        f->transfer.partial->asks_plain = true;
        traffic_add(&r->traffic[f->order.peer].corrupt, 1);
    }
    if (!rc)
        rc = take(r->demand, f, run,
                  buffer + (size_t)(run.first % FRAME_BLOCKS_MAX) * BLOCK_BYTES);
    free(buffer);
    return rc;
}

/* block_fetch_add - all bytes of one reply: verifies them, writes them, and lets programs
 * read them. -EBADMSG: they were changed on the way. */
int block_fetch_add(struct receiver *r, struct fetch *f, const struct frame_reply *head,
                    const uint8_t *bytes)
{
    struct transfer *t = &f->transfer;
    struct block_run run = run_of(f, head->extent);
    t->step = MONARCH_STEP_VERIFY;
    t->spent.bytes += blocks_bytes(t->original.size, run.first, run.count);
    int rc = check(r, f, head, run, bytes);
    if (rc)
        return rc;
    return head->packed ? take_packed(r, f, run, bytes, head->size)
                        : take(r->demand, f, run, bytes);
}

/* is_own - the failure is one of this node, or the File has changed. */
static bool is_own(const struct transfer *t, int status)
{
    return status != -EBADMSG && t->step != MONARCH_STEP_READ;
}

/* next_source - a peer that was late is not followed by another one, for which programs
 * would wait as long. */
static uint8_t next_source(const struct monarch_order *order, int status)
{
    bool late = status == -ETIMEDOUT || status == -EAGAIN;
    return late ? SOURCES_MAX : (uint8_t)(order->tried + 1);
}

/* was_damaged - the peer has sent a damaged piece. It is asked for plain Blocks: it finds the
 * damage when it decodes them, and has them brought again. */
static bool was_damaged(const struct fetch *f, int status)
{
    return status == -EBADMSG && f->packing && f->transfer.partial->asks_plain;
}

/* is_needless - no program runs on this node, and the connection has ended: as the job ends,
 * nodes leave before all that programs have asked for ahead has come. Programs of other nodes
 * that wait ask again, which ends with -ENOTCONN if the peer is still in the table. */
static bool is_needless(struct demand *d, int status)
{
    return (status == -ECONNRESET || status == -ECANCELED) && fill_paused(d);
}

/* go_on - what of the claimed Blocks has not come is asked of the next source; what was for
 * fill, or is needless, is left. */
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
    if (leaves)
        partial_abandon(d->partials, p);
}

/* fail - nothing of the partial Replica can be used any more; false: that is told already. */
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

/* fill_on - lets fill go on with a File whose Blocks have come. */
static void fill_on(struct demand *d, uint32_t file)
{
    partial_resume(d->partials, file);
    pthread_mutex_lock(&d->transfers->lock);
    scheduler_call(d->transfers);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* block_fetch_end - returns the status that Python is to hear of. */
int block_fetch_end(struct receiver *r, struct fetch *f, int status)
{
    struct demand *d = r->demand;
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

/* block_fetch_refuse - the same of an order that has not begun. */
void block_fetch_refuse(struct receiver *r, const struct monarch_order *order,
                        int status)
{
    struct partial *p;
    if (partial_enter(r->demand->partials, order, &p))
        return;
    go_on(r->demand, p, order, status, next_source(order, status));
    partial_leave(r->demand->partials, p, false);
}
