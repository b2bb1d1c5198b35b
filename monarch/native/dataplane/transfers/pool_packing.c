/* pool_packing.c - the routes into a packed Tier, from the Pool and from a peer's plain bytes.
 *
 * A File that a program has waited for is packed from the Pool: a small File from its Replica
 * there, an Extent of a large File from its own file. Extents are compared with the checksums that
 * their Blocks had when they arrived.
 */
#include <errno.h>
#include <sys/stat.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/packing.h"
#include "shared/xxh3.h"

/* packing_check - checks an order between a packed Tier and the Pool. */
int packing_check(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    bool large = t->order.page_count;
    if (!ts->packs || (large && !ts->partials->count))
        return -EINVAL;
    t->pages.next = t->order.first_page;
    t->pages.end = t->pages.next + t->order.page_count;
    int rc = large ? partial_enter(ts->partials, &t->order, &t->partial) : 0;
    if (rc)
        return rc;
    if (large)
        table_busy(ts->table, true);
    return transfer_check(ts, t, buffer);
}

/* packing_leave - ends the use of the partial Replica. That its File was written is reported by
 * Transfers from the origin. */
void packing_leave(struct transfers *ts, struct transfer *t)
{
    if (!t->partial)
        return;
    table_busy(ts->table, false);
    partial_leave(ts->partials, t->partial, false);
}

/* ---- from the Pool -------------------------------------------------------------------- */

/* open_file - opens the Replica in the Pool. -ECANCELED: it is gone. */
static int open_file(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct stat st;
    uint32_t pool = ts->table->options.tiers;
    (void)buffer;
    t->step = MONARCH_STEP_OPEN;
    t->read.fd = file_openat(ts->job->tiers[pool], t->file.name, O_RDONLY | O_NONBLOCK,
                             0);
    if (t->read.fd < 0)
        return -ECANCELED;
    if (fstat(t->read.fd, &st) || (uint64_t)st.st_size != t->original.size)
        return -ECANCELED;
    return packing_create(t);
}

static int open_extent(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)ts, (void)buffer;
    return packing_create(t);
}

/* borrow - borrows the file of the Extent in the Pool; the order keeps naming the packed Tier. */
static int borrow(struct transfers *ts, struct transfer *t)
{
    uint16_t tier = t->order.tier;
    int rc = partial_borrow(ts, t, order_extent(&t->order), false);
    t->order.tier = tier;
    return rc;
}

/* is_right - a piece of an Extent matches the checksums of its Blocks. */
static bool is_right(const struct transfer *t, const uint8_t *bytes)
{
    uint32_t first = t->order.first_page / BLOCK_PAGES + t->frame->added / BLOCK_BYTES;
    return !t->partial || blocks_same(t->partial, first, bytes, t->read.piece);
}

/* read_piece - reads the next piece; fails if the job ends, or if the File was written. */
static int read_piece(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint32_t left = t->frame->plain - t->frame->added;
    int rc = job_stopping(ts->job) ? -ECANCELED : 0;
    if (!rc && t->partial)
        rc = borrow(ts, t);
    if (rc)
        return rc;
    t->step = MONARCH_STEP_READ;
    t->read.piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    ssize_t got = file_read_at(t->partial ? t->file.fd : t->read.fd, buffer,
                               t->read.piece, t->frame->added);
    if (got != (ssize_t)t->read.piece || !is_right(t, buffer))
        return t->partial ? -EBADMSG : -ECANCELED;
    return transfer_written(ts, t) ? -ESTALE : 0;
}

/* pack_piece - adds the piece to the frame. */
static int pack_piece(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    t->step = MONARCH_STEP_WRITE;
    t->sum.chain = xxh3(buffer, t->read.piece, t->sum.chain);
    int rc = packing_write(ts, t, buffer, t->read.piece);
    return rc || t->frame->added == t->frame->plain ? rc : STEP_MORE;
}

/* commit - commits the complete frame: the Extent is packed from then on. A small File whose frame
 * does not fit is refused, or stays where it is. */
static int commit(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    if (transfer_written(ts, t))
        return -ESTALE;
    if (!t->partial && !ts->options.seals_only && t->sum.chain != *t->sum.first)
        return -ECANCELED; /* these are not the bytes that arrived */
    int rc = packing_commit(ts, t, t->sum.chain);
    if (t->partial && rc && rc != -ECANCELED && t->step == MONARCH_STEP_WRITE)
        report_tier(ts, t, t->order.tier, rc);
    return !t->partial && packing_found_no_room(t, rc) ? 0 : rc;
}

/* end_extent - ends the packing of an Extent: one that could not be packed may leave the Pool, and
 * a damaged one is removed at once and read again. */
static int end_extent(struct transfers *ts, struct transfer *t, int rc)
{
    uint32_t extent = order_extent(&t->order);
    partial_return(t);
    if (!ts->packs || !ts->partials->count)
        return rc;
    if (rc)
        table_give_frame(ts->table, &t->order);
    if (t->partial && rc == -EBADMSG) {
        table_count(ts->table, &(struct monarch_tally){.frames_dropped = 1});
        partial_give_up_extent(ts->partials, t->partial, extent);
    }
    if (t->partial) {
        t->partial->each[extent].stays_plain = rc && rc != -EBADMSG;
        extent_packing_end(ts->partials, t->partial, extent);
    }
    packing_leave(ts, t);
    return 0;
}

const struct route route_pool = {
    .steps = {[TRANSFER_CHECK] = packing_check,
              [TRANSFER_OPEN] = open_file,
              [TRANSFER_BRING] = read_piece,
              [TRANSFER_WRITE] = pack_piece,
              [TRANSFER_COMMIT] = commit},
};

const struct route route_extent_pool = {
    .steps = {[TRANSFER_CHECK] = packing_check,
              [TRANSFER_OPEN] = open_extent,
              [TRANSFER_BRING] = read_piece,
              [TRANSFER_WRITE] = pack_piece,
              [TRANSFER_COMMIT] = commit},
    .settle = end_extent,
};

/* ---- from a peer's plain bytes -------------------------------------------------------- */

static int check_plain(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = transfer_check(ts, t, buffer);
    return rc || ts->deferred ? rc : -EINVAL; /* else no Tier is packed */
}

static int take_plain(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    t->came = deferred_take(ts, &t->order);
    return t->came ? packing_create(t) : -ECANCELED;
}

/* compress - adds the next piece to the frame. */
static int compress(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->read.offset;
    size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    const uint8_t *plain = t->came->bytes + frame_least_bytes(t->original.size);
    (void)buffer;
    if (!n)
        return 0;
    if (job_stopping(ts->job))
        return -ECANCELED;
    if (transfer_written(ts, t))
        return -ESTALE;
    t->step = MONARCH_STEP_WRITE;
    int rc = packing_write(ts, t, plain + t->read.offset, n);
    t->read.offset += rc ? 0 : n;
    return rc || t->read.offset == t->original.size ? rc : STEP_MORE;
}

/* settle_plain - removes the bytes from the queue, even if the File could not be begun. */
static int settle_plain(struct transfers *ts, struct transfer *t, int rc)
{
    if (!t->came && ts->deferred)
        t->came = deferred_take(ts, &t->order);
    if (t->came)
        deferred_done(ts, t->came);
    return rc;
}

const struct route route_came = {
    .steps = {[TRANSFER_CHECK] = check_plain,
              [TRANSFER_OPEN] = take_plain,
              [TRANSFER_WRITE] = compress,
              [TRANSFER_COMMIT] = transfer_commit},
    .settle = settle_plain,
};
