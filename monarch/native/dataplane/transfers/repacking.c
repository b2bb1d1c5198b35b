/* repacking.c - Transfers between a packed Tier and the Pool, both ways.
 *
 * A packed File that is asked for is decoded into the Pool, once for all programs that open it
 * there. A File that a program has waited for is packed from the Pool.
 */
#include "dataplane/transfers/packing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/seal.h"
#include "shared/progress.h"

/* note_unread - what cannot be read of a frame is as what is damaged: the medium of its Tier, of
 * which Python hears, is not that of the Transfer. */
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

/* packing_find - finds a frame of so many plain bytes and checks its head. */
int packing_find(struct transfers *ts, struct transfer *t, uint64_t row, uint64_t plain)
{
    struct unpacking *u = &t->unpacking;
    t->step = MONARCH_STEP_VERIFY;
    if (!packs_take(ts->packs, row, u))
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

static int begin_unpacking(struct transfers *ts, struct transfer *t)
{
    uint64_t row = packs_row(ts->packs, t->order.file, 0);
    t->from = SOURCE_PACK;
    int rc = packing_find(ts, t, row, t->original.size);
    return rc ? rc : replica_file_create(ts, t);
}

/* begin_packing - opens the Replica in the Pool. -ECANCELED: it has gone. */
static int begin_packing(struct transfers *ts, struct transfer *t)
{
    struct stat st;
    uint32_t pool = ts->table->options.tiers;
    t->step = MONARCH_STEP_OPEN;
    t->source = file_openat(ts->job->tiers[pool], t->name, O_RDONLY | O_NONBLOCK, 0);
    if (t->source < 0)
        return -ECANCELED;
    if (fstat(t->source, &st) || (uint64_t)st.st_size != t->original.size)
        return -ECANCELED;
    return packing_create(t);
}

static bool unpacks(const struct transfers *ts, const struct transfer *t)
{
    return table_is_pool(ts->table, t->order.tier);
}

static int begin(struct transfers *ts, struct transfer *t)
{
    int rc = transfer_prepare(ts, t);
    if (!rc && !ts->packs)
        rc = -EINVAL;
    if (rc)
        return rc;
    return unpacks(ts, t) ? begin_unpacking(ts, t) : begin_packing(ts, t);
}

/* decode - the next piece of a frame, into the buffer. */
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

/* packing_decode_at - any piece of a frame that was found. */
int packing_decode_at(struct transfers *ts, struct transfer *t, uint32_t piece,
                      uint8_t *buffer)
{
    struct unpacking *u = &t->unpacking;
    uint32_t left = u->head.plain - piece * PIECE_BYTES;
    u->offset = u->place.offset + frame_least_bytes(u->head.plain);
    for (u->piece = 0; u->piece < piece; u->piece++)
        u->offset += u->lengths[u->piece] & ~FRAME_RAW;
    return decode(ts, t, buffer, left < PIECE_BYTES ? left : PIECE_BYTES);
}

/* read_plain - the next piece of a Replica in the Pool. */
static int read_plain(struct transfer *t, uint8_t *buffer, size_t n)
{
    t->step = MONARCH_STEP_READ;
    ssize_t got = file_read(t->source, buffer, n, n);
    return got == (ssize_t)n ? 0 : -ECANCELED;
}

/* step - the next piece, of PIECE_BYTES at most. */
static int step(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->offset, began = clock_ns();
    size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc = unpacks(ts, t) ? decode(ts, t, buffer, n) : read_plain(t, buffer, n);
    if (unpacks(ts, t))
        t->unpack_ns += clock_ns() - began;
    if (job_stopping(ts->job))
        return -ECANCELED;
    if (!rc && transfer_written(ts, t))
        rc = -ESTALE;
    rc = rc ? rc : transfer_add(ts, t, buffer, n);
    progress_store(ts->job->requests, t->order.file, progress_of(t->offset));
    return rc;
}

/* verify - what was decoded must be what was packed. */
static int verify(struct transfers *ts, struct transfer *t)
{
    t->step = MONARCH_STEP_VERIFY;
    if (*t->first_digest != t->unpacking.head.digest)
        return -EBADMSG;
    table_count_unpacked(ts->table, t->original.size, t->unpack_ns);
    return replica_file_verify(t);
}

enum { UNFINISHED = 1 };

/* run - 0, -errno or UNFINISHED. */
static int run(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = t->begun ? 0 : begin(ts, t);
    while (!rc && t->offset < t->original.size) {
        rc = step(ts, t, buffer);
        health_note_step(ts, t);
        if (!rc && order_class(t->order.kind) == CLASS_BACKGROUND &&
            t->offset < t->original.size)
            return UNFINISHED;
    }
    if (!rc && unpacks(ts, t))
        rc = verify(ts, t);
    return rc ? rc : transfer_publish(ts, t);
}

/* has_left - the frame was not found, or is not where it was: nothing is wrong with it. */
static bool has_left(struct transfers *ts, const struct transfer *t)
{
    const struct frame_place *found = &t->unpacking.place;
    return unpacks(ts, t) &&
           (!found->segment ||
            packs_moved(ts->packs, packs_row(ts->packs, t->order.file, 0), found));
}

/* drop_copy - nothing is left of what was decoded. */
static void drop_copy(struct transfer *t)
{
    seal_drop(&t->sealing);
    if (t->target >= 0)
        close(t->target);
    if (t->named)
        unlinkat(t->tier, t->temporary, 0);
    t->target = -1;
    t->named = t->begun = false;
    t->offset = t->chain = 0;
}

/* start_over - the frame was moved while it was read: it is read at its new place. */
static bool start_over(struct transfers *ts, struct transfer *t)
{
    if (!has_left(ts, t))
        return false;
    drop_copy(t);
    return true;
}

/* give_up - a frame that is damaged is dropped. What had left before it was decoded is no
 * error: programs ask for the File again. */
static int give_up(struct transfers *ts, struct transfer *t)
{
    if (!has_left(ts, t)) {
        packing_give_up(ts, t->order.file);
        return -EBADMSG;
    }
    if (!packs_has(ts->packs, packs_row(ts->packs, t->order.file, 0)))
        table_forget_packed(ts->table, t->order.file);
    drop_copy(t); /* before another Transfer of the File may begin */
    monarch_table_fail(ts->table, &t->order, REASON_NONE, 1);
    return 0;
}

/* repacking_run - continues a Transfer between a packed Tier and the Pool, as
 * transfer_run() does others. */
bool repacking_run(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc = run(ts, t, buffer);
    if (rc == -EBADMSG && start_over(ts, t))
        rc = run(ts, t, buffer);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED)
        return false;
    if (rc == -EBADMSG && unpacks(ts, t))
        rc = give_up(ts, t);
    transfer_end(t, rc);
    return true;
}
