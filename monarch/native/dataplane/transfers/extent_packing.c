/* extent_packing.c - the routes of Extents of large Files: from the Pool into a packed Tier, and
 * back when Blocks of them are asked for.
 *
 * A frame has one checksum for all of an Extent, of which a program may want one Block. So
 * what is decoded is compared with the checksums that the Blocks had when they came.
 */
#include "dataplane/transfers/extent_packing.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

enum { PIECE_PAGES = PIECE_BYTES / PAGE_BYTES };

/* extent_decode_order - makes an order for Pages one that decodes them. */
void extent_decode_order(const struct transfers *ts, struct monarch_order *order)
{
    order->kind |= MONARCH_LOCAL;
    order->peer = NO_PEER;
    order->tier = (uint16_t)ts->table->options.tiers;
}

static uint32_t extent_of(const struct transfer *t)
{
    return order_extent(&t->order);
}

static uint64_t row_of(const struct transfers *ts, const struct transfer *t)
{
    return packs_row(ts->packs, t->order.file, extent_of(t));
}

/* ---- into the Tier -------------------------------------------------------------------- */

/* borrow - the file of the Extent in the Pool; the order keeps naming the packed Tier. */
static int borrow(struct transfers *ts, struct transfer *t)
{
    uint16_t tier = t->order.tier;
    int rc = partial_borrow(ts, t, extent_of(t), false);
    t->order.tier = tier;
    return rc;
}

static int begin_packing(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t plain = extent_bytes(t->original.size, extent_of(t));
    (void)ts, (void)buffer;
    return frame_new(t->order.tier, plain, &t->frame);
}

/* read_piece - reads the next piece and compares it with the checksums of its Blocks. */
static int read_piece(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint32_t left = t->frame->plain - t->frame->added;
    uint32_t first = t->order.first_page / BLOCK_PAGES + t->frame->added / BLOCK_BYTES;
    size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc = job_stopping(ts->job) ? -ECANCELED : borrow(ts, t);
    if (rc)
        return rc;
    t->read.piece = n;
    bool same = file_read_at(t->file.fd, buffer, n, t->frame->added) == (ssize_t)n &&
                blocks_same(t->partial, first, buffer, n);
    return same ? 0 : -EBADMSG;
}

/* pack_piece - adds it to the frame. */
static int pack_piece(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    t->sum.chain = xxh3(buffer, t->read.piece, t->sum.chain);
    int rc = packing_write(ts, t, buffer, t->read.piece);
    return rc || t->frame->added == t->frame->plain ? rc : STEP_MORE;
}

/* put - the frame is complete: the Extent is packed from now on. */
static int put(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    if (transfer_written(ts, t))
        return -ESTALE;
    int rc = packing_commit(ts, t, t->sum.chain);
    if (rc && rc != -ECANCELED && t->step == MONARCH_STEP_WRITE)
        report_tier(ts, t, t->order.tier, rc);
    return rc;
}

/* ---- out of it ------------------------------------------------------------------------ */

/* piece_at - the piece of a frame in which a Page is. */
static struct page_run piece_at(const struct transfer *t, uint32_t page)
{
    uint32_t first = page - page % PIECE_PAGES, left = t->partial->pages - first;
    return (struct page_run){first, left < PIECE_PAGES ? left : PIECE_PAGES};
}

/* set_run - writes Pages of a piece, which this Transfer has claimed. */
static int set_run(struct transfers *ts, struct transfer *t, struct page_run run,
                   const uint8_t *bytes)
{
    uint64_t offset = (uint64_t)run.first * PAGE_BYTES;
    size_t n = (size_t)pages_bytes(t->original.size, run.first, run.count);
    int rc = file_write_at(t->file.fd, bytes, n, offset - t->file.shift);
    progress_store(ts->job->requests, t->order.file, run.first + run.count);
    if (rc)
        partial_unclaim(ts->partials, t->partial, run, true);
    else if (partial_came_again(ts->partials, t->partial, run))
        partial_hand_complete(ts->partials, &t->order, extent_of(t));
    return rc;
}

static bool is_claimed(struct page_run piece, const uint64_t bits[PIECE_BLOCKS],
                       uint32_t page)
{
    return bits[(page - piece.first) / BLOCK_PAGES] & pages_mask(page, 1);
}

/* next_run - takes the next run of Pages out of the bits of a piece; count 0: none. */
static struct page_run next_run(struct page_run piece, uint64_t bits[PIECE_BLOCKS])
{
    uint32_t at = piece.first, end = piece.first + piece.count;
    while (at < end && !is_claimed(piece, bits, at))
        at++;
    struct page_run run = {at, 0};
    for (; at < end && is_claimed(piece, bits, at); at++, run.count++)
        bits[(at - piece.first) / BLOCK_PAGES] &= ~pages_mask(at, 1);
    return run;
}

/* spread - writes what was claimed of a piece, or gives it up: programs ask for it again. */
static int spread(struct transfers *ts, struct transfer *t, struct page_run piece,
                  uint64_t bits[PIECE_BLOCKS], const uint8_t *bytes)
{
    struct page_run run;
    int rc = 0;
    while ((run = next_run(piece, bits)).count) {
        size_t at = (size_t)(run.first - piece.first) * PAGE_BYTES;
        if (!bytes || rc)
            partial_unclaim(ts->partials, t->partial, run, rc != 0);
        else
            rc = set_run(ts, t, run, bytes + at);
    }
    return rc;
}

/* unpack_piece - decodes the piece with the next Page that was requested. */
static int unpack_piece(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct page_run piece = piece_at(t, t->pages.next);
    uint32_t end = piece.first + piece.count;
    struct page_run asked = {t->pages.next, 0};
    uint64_t bits[PIECE_BLOCKS];
    asked.count = (end < t->pages.end ? end : t->pages.end) - asked.first;
    extent_claim_piece(ts->partials, t->partial, piece, asked, bits);
    size_t n = (size_t)pages_bytes(t->original.size, piece.first, piece.count);
    uint64_t began = clock_cpu_ns();
    t->pages.next += asked.count;
    int rc = packing_decode_at(ts, t, piece.first % EXTENT_PAGES / PIECE_PAGES, buffer);
    if (!rc && !blocks_same(t->partial, piece.first / BLOCK_PAGES, buffer, n))
        rc = -EBADMSG;
    table_count(ts->table,
                &(struct monarch_tally){.unpacked_bytes = rc ? 0 : n,
                                        .unpack_ns = clock_cpu_ns() - began});
    int put_rc = spread(ts, t, piece, bits, rc ? NULL : buffer);
    return rc ? rc : put_rc;
}

static int find_frame(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    return packing_find(ts, t, row_of(ts, t),
                        extent_bytes(t->original.size, extent_of(t)));
}

/* unpack - decodes the Pages that were requested, and what their pieces have beside them. It does not
 * yield: programs may wait for any of them. */
static int unpack(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = partial_borrow(ts, t, extent_of(t), false);
    while (!rc && t->pages.next < t->pages.end) {
        rc = unpack_piece(ts, t, buffer);
        health_note_step(ts, t);
        if (job_stopping(ts->job))
            return -ECANCELED;
    }
    return rc;
}

/* is_useless - a frame is damaged; or nothing is decoded of it, for a File that waits to be
 * whole. */
static bool is_useless(const struct transfer *t, int rc)
{
    return rc == -EBADMSG ||
           (rc && rc != -ECANCELED && t->partial && t->partial->gathers);
}

/* drop_frame - forgets a frame, unless it has moved to another place. */
static void drop_frame(struct transfers *ts, const struct transfer *t)
{
    if (packs_moved(ts->packs, row_of(ts, t), &t->unpacking.place))
        return;
    packs_drop_damaged(ts->packs, t->order.file, extent_of(t));
}

/* ---- both ------------------------------------------------------------------------------ */

static int check(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    if (!ts->packs || !ts->partials->count)
        return -EINVAL;
    t->pages.next = t->order.first_page;
    t->pages.end = t->pages.next + t->order.page_count;
    int rc = partial_enter(ts->partials, &t->order, &t->partial);
    if (rc)
        return rc;
    table_busy(ts->table, true);
    return transfer_check(ts, t, buffer);
}

/* leave - ends the use of the partial Replica. That a File was written, a Transfer from the origin
 * reports. */
static void leave(struct transfers *ts, struct transfer *t)
{
    if (!t->partial)
        return;
    table_busy(ts->table, false);
    partial_leave(ts->partials, t->partial, false);
}

/* end_packing - lets an Extent that could not be packed leave the Pool. A damaged one is removed at
 * once and read again. */
static int end_packing(struct transfers *ts, struct transfer *t, int rc)
{
    partial_return(t);
    if (!ts->packs || !ts->partials->count)
        return rc;
    if (rc)
        table_give_frame(ts->table, &t->order);
    if (t->partial && rc == -EBADMSG) {
        table_count(ts->table, &(struct monarch_tally){.frames_dropped = 1});
        partial_give_up_extent(ts->partials, t->partial, extent_of(t));
    }
    if (t->partial) {
        t->partial->each[extent_of(t)].stays_plain = rc && rc != -EBADMSG;
        extent_packing_end(ts->partials, t->partial, extent_of(t));
    }
    leave(ts, t);
    return 0;
}

/* end_unpacking - a damaged frame is dropped: the Pages come from elsewhere when programs ask for
 * them again. After any other error they read the origin. */
static int end_unpacking(struct transfers *ts, struct transfer *t, int rc)
{
    partial_return(t);
    if (!ts->packs || !ts->partials->count)
        return rc;
    if (is_useless(t, rc))
        drop_frame(ts, t);
    struct page_run left = {t->pages.next, t->pages.end - t->pages.next};
    if (t->partial && left.count)
        partial_unclaim(ts->partials, t->partial, left,
                        rc != -EBADMSG && rc != -ECANCELED);
    leave(ts, t);
    return 0;
}

const struct route route_extent_pool = {
    .steps = {[TRANSFER_CHECK] = check,
              [TRANSFER_OPEN] = begin_packing,
              [TRANSFER_BRING] = read_piece,
              [TRANSFER_WRITE] = pack_piece,
              [TRANSFER_COMMIT] = put},
    .settle = end_packing,
};

const struct route route_extent_frame = {
    .steps = {[TRANSFER_CHECK] = check,
              [TRANSFER_OPEN] = find_frame,
              [TRANSFER_BRING] = unpack},
    .settle = end_unpacking,
};
