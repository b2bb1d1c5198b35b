/* unpacking.c - the routes out of a packed Tier, into the Pool.
 *
 * A small File is decoded once for all programs that open it. For an Extent of a large File, only
 * the pieces with the requested Pages are decoded. A frame has one checksum for all of an Extent,
 * so pieces are compared with the checksums that their Blocks had when they arrived.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/seal.h"
#include "dataplane/transfers/packing.h"
#include "shared/progress.h"

enum { PIECE_PAGES = PIECE_BYTES / PAGE_BYTES };

static uint64_t row_of(const struct transfers *ts, const struct transfer *t)
{
    return packs_row(ts->packs, t->order.file, order_extent(&t->order));
}

/* note_unread - treats an unreadable frame as damaged, and reports its Tier to Python, as the
 * Transfer is into another Tier. */
static int note_unread(struct transfers *ts, const struct transfer *t, int error)
{
    report_tier(ts, t, t->unpacking.tier, error);
    return -EBADMSG;
}

/* read_frame - reads bytes of a frame. */
static int read_frame(struct transfers *ts, const struct transfer *t, void *out,
                      size_t n, uint64_t at)
{
    ssize_t got = file_read_at(t->unpacking.fd, out, n, at);
    if (got < 0)
        return note_unread(ts, t, (int)got);
    return got == (ssize_t)n ? 0 : -EBADMSG;
}

/* find_frame - finds the frame and checks its head. */
static int find_frame(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct unpacking *u = &t->unpacking;
    uint64_t plain = extent_bytes(t->original.size, order_extent(&t->order));
    (void)buffer;
    t->step = MONARCH_STEP_VERIFY;
    if (!packs_take(ts->packs, row_of(ts, t), u))
        return -EBADMSG;
    struct frame_head expected = packing_head(ts, t, u->tier);
    expected.plain = (uint32_t)plain;
    expected.stored = u->place.bytes - (uint32_t)sizeof(u->head);
    u->offset = u->place.offset + frame_least_bytes(plain);
    int found = frame_read(u->fd, u->place.offset, &expected, &u->head, u->lengths);
    if (found < 0)
        return note_unread(ts, t, found);
    return found && plain <= EXTENT_BYTES ? 0 : -EBADMSG;
}

/* decode - decodes the next piece of a frame into the buffer. */
static int decode(struct transfers *ts, struct transfer *t, uint8_t *buffer, size_t n)
{
    struct unpacking *u = &t->unpacking;
    uint32_t length = u->lengths[u->piece] & ~FRAME_RAW;
    bool raw = u->lengths[u->piece] & FRAME_RAW;
    uint8_t *packed = raw ? buffer : buffer + PIECE_BYTES;
    t->step = MONARCH_STEP_VERIFY;
    if (read_frame(ts, t, packed, length, u->offset))
        return -EBADMSG;
    u->piece++;
    u->offset += length;
    if (raw)
        return 0;
    const struct packed_piece piece = {packs_codec(ts->packs, u->tier, t->order.file),
                                       packed, length};
    return packing_decode(ts, &piece, buffer, n);
}

/* has_moved - the frame was not found, or is at another place now: it is not damaged. */
static bool has_moved(struct transfers *ts, const struct transfer *t)
{
    return packs_moved(ts->packs, row_of(ts, t), &t->unpacking.place);
}

/* ---- small Files ---------------------------------------------------------------------- */

static int open_frame(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    t->from = SOURCE_PACK;
    int rc = find_frame(ts, t, buffer);
    return rc ? rc : replica_file_create(ts, t);
}

/* decode_next - decodes the next piece; fails if the job ends, or if the File was written. */
static int decode_next(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->read.offset, began = clock_cpu_ns();
    t->read.piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc = left ? decode(ts, t, buffer, t->read.piece) : 0;
    t->spent.unpack_ns += clock_cpu_ns() - began;
    if (!rc && job_stopping(ts->job))
        return -ECANCELED;
    return !rc && transfer_written(ts, t) ? -ESTALE : rc;
}

/* verify - checks that the decoded bytes are those that were packed. */
static int verify(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    t->step = MONARCH_STEP_VERIFY;
    if (*t->sum.first != t->unpacking.head.digest)
        return -EBADMSG;
    table_count(ts->table, &(struct monarch_tally){.unpacked_files = 1,
                                                   .unpacked_bytes = t->original.size,
                                                   .unpack_ns = t->spent.unpack_ns});
    return replica_file_verify(t);
}

/* has_left - the frame was not found, or it has moved. */
static bool has_left(struct transfers *ts, const struct transfer *t)
{
    return !t->unpacking.place.segment || has_moved(ts, t);
}

/* drop_copy - removes the decoded copy. */
static void drop_copy(struct transfer *t)
{
    seal_drop(&t->sum.sealing);
    if (t->file.fd >= 0)
        close(t->file.fd);
    if (t->file.named)
        unlinkat(t->file.dir, t->file.temporary, 0);
    t->file.fd = -1;
    t->file.named = false;
    t->read.offset = t->sum.chain = 0;
    t->sum.at = t->sum.first;
}

/* give_up - drops a damaged frame. A frame that left before it was decoded is no error: programs
 * request the File again. */
static int give_up(struct transfers *ts, struct transfer *t, int rc)
{
    if (rc != -EBADMSG)
        return rc;
    if (!has_left(ts, t)) {
        packs_drop_damaged(ts->packs, t->order.file, 0);
        return -EBADMSG;
    }
    if (!packs_has(ts->packs, row_of(ts, t)))
        table_forget_packed(ts->table, t->order.file, 0);
    drop_copy(t); /* before another Transfer of the File may begin */
    monarch_table_fail(ts->table, &t->order, REASON_NONE, 1);
    return 0;
}

/* retry - reads a frame that moved during the read once more, at its new place. */
static int retry(struct transfers *ts, struct transfer *t, int rc)
{
    if (rc != -EBADMSG || !has_left(ts, t))
        return give_up(ts, t, rc);
    drop_copy(t);
    return STEP_ELSEWHERE;
}

#define FRAME_STEPS                                                        \
    {                                                                      \
        [TRANSFER_CHECK] = packing_check, [TRANSFER_OPEN] = open_frame,    \
        [TRANSFER_BRING] = decode_next, [TRANSFER_WRITE] = transfer_write, \
        [TRANSFER_VERIFY] = verify, [TRANSFER_COMMIT] = transfer_commit    \
    }

static const struct route moved_frame = {.steps = FRAME_STEPS, .settle = give_up};

const struct route route_frame = {
    .steps = FRAME_STEPS, .settle = retry, .next = &moved_frame};

/* ---- Extents -------------------------------------------------------------------------- */

/* decode_at - decodes a given piece of a frame. */
static int decode_at(struct transfers *ts, struct transfer *t, uint32_t piece,
                     uint8_t *buffer)
{
    struct unpacking *u = &t->unpacking;
    uint32_t left = u->head.plain - piece * PIECE_BYTES;
    u->offset = u->place.offset + frame_least_bytes(u->head.plain);
    for (u->piece = 0; u->piece < piece; u->piece++)
        u->offset += u->lengths[u->piece] & ~FRAME_RAW;
    return decode(ts, t, buffer, left < PIECE_BYTES ? left : PIECE_BYTES);
}

/* piece_at - returns the piece of a frame that contains a Page. */
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
    progress_store(ts->job->requests, t->order.file,
                   progress_at(run.first + run.count));
    if (rc)
        partial_unclaim(ts->partials, t->partial, run, true);
    else if (partial_arrived_again(ts->partials, t->partial, run, t->file.removals))
        partial_hand_complete(ts->partials, &t->order, order_extent(&t->order));
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

/* spread - writes the claimed Pages of a piece, or releases them: programs request them again. */
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

/* unpack_piece - decodes the piece with the next requested Page. */
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
    int rc = decode_at(ts, t, piece.first % EXTENT_PAGES / PIECE_PAGES, buffer);
    if (!rc && !blocks_same(t->partial, piece.first / BLOCK_PAGES, buffer, n))
        rc = -EBADMSG;
    table_count(ts->table,
                &(struct monarch_tally){.unpacked_bytes = rc ? 0 : n,
                                        .unpack_ns = clock_cpu_ns() - began});
    int put_rc = spread(ts, t, piece, bits, rc ? NULL : buffer);
    return rc ? rc : put_rc;
}

/* unpack - decodes the requested Pages and the others of their pieces. It does not yield: programs
 * may wait for any of them. */
static int unpack(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = partial_borrow(ts, t, order_extent(&t->order), false);
    while (!rc && t->pages.next < t->pages.end) {
        rc = unpack_piece(ts, t, buffer);
        health_note_step(ts, t);
        if (job_stopping(ts->job))
            return -ECANCELED;
    }
    return rc;
}

/* is_useless - the frame is damaged, or cannot be decoded for a File that waits to be whole. */
static bool is_useless(const struct transfer *t, int rc)
{
    return rc == -EBADMSG ||
           (rc && rc != -ECANCELED && t->partial && t->partial->gathers);
}

/* drop_frame - forgets a frame, unless it has moved to another place. */
static void drop_frame(struct transfers *ts, const struct transfer *t)
{
    if (!has_moved(ts, t))
        packs_drop_damaged(ts->packs, t->order.file, order_extent(&t->order));
}

/* end_unpacking - drops a damaged frame: its Pages are read from elsewhere when programs request
 * them again. After any other error programs read the origin. */
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
    packing_leave(ts, t);
    return 0;
}

const struct route route_extent_frame = {
    .steps = {[TRANSFER_CHECK] = packing_check,
              [TRANSFER_OPEN] = find_frame,
              [TRANSFER_BRING] = unpack},
    .settle = end_unpacking,
};
