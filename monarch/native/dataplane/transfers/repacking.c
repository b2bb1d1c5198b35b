/* repacking.c - the routes of small Files between a packed Tier and the Pool, both ways.
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
#include "dataplane/transfers/deferred.h"
#include "shared/progress.h"

static uint64_t row_of(const struct transfers *ts, const struct transfer *t)
{
    return packs_row(ts->packs, t->order.file, 0);
}

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

static int open_frame(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    t->from = SOURCE_PACK;
    int rc = packing_find(ts, t, row_of(ts, t), t->original.size);
    return rc ? rc : replica_file_create(ts, t);
}

/* open_pooled - opens the Replica in the Pool. -ECANCELED: it has gone. */
static int open_pooled(struct transfers *ts, struct transfer *t, uint8_t *buffer)
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

static int check(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = transfer_check(ts, t, buffer);
    return rc || ts->packs ? rc : -EINVAL;
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

/* brought - notes the next piece. Nobody needs it if the job ends, or if the File was written. */
static int brought(struct transfers *ts, struct transfer *t, size_t n)
{
    t->read.piece = n;
    if (job_stopping(ts->job))
        return -ECANCELED;
    return transfer_written(ts, t) ? -ESTALE : 0;
}

static size_t next_bytes(const struct transfer *t)
{
    uint64_t left = t->original.size - t->read.offset;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static int decode_next(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    size_t n = next_bytes(t);
    uint64_t began = clock_cpu_ns();
    int rc = n ? decode(ts, t, buffer, n) : 0;
    t->spent.unpack_ns += clock_cpu_ns() - began;
    return rc ? rc : brought(ts, t, n);
}

static int read_pooled(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    size_t n = next_bytes(t);
    t->step = MONARCH_STEP_READ;
    ssize_t got = n ? file_read(t->read.fd, buffer, n, n) : 0;
    return got == (ssize_t)n ? brought(ts, t, n) : -ECANCELED;
}

/* verify - what was decoded must be what was packed. */
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

/* has_left - the frame was not found, or is not where it was: nothing is wrong with it. */
static bool has_left(struct transfers *ts, const struct transfer *t)
{
    const struct frame_place *found = &t->unpacking.place;
    return !found->segment || packs_moved(ts->packs, row_of(ts, t), found);
}

/* drop_copy - removes what was decoded. */
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

/* give_up - drops a frame that is damaged. What had left before it was decoded is no error:
 * programs ask for the File again. */
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

/* retry - a frame that was moved while it was read is read at its new place, once. */
static int retry(struct transfers *ts, struct transfer *t, int rc)
{
    if (rc != -EBADMSG || !has_left(ts, t))
        return give_up(ts, t, rc);
    drop_copy(t);
    return STEP_ELSEWHERE;
}

#define FRAME_STEPS                                                        \
    {                                                                      \
        [TRANSFER_CHECK] = check, [TRANSFER_OPEN] = open_frame,            \
        [TRANSFER_BRING] = decode_next, [TRANSFER_WRITE] = transfer_write, \
        [TRANSFER_VERIFY] = verify, [TRANSFER_COMMIT] = transfer_commit    \
    }

static const struct route moved_frame = {.steps = FRAME_STEPS, .settle = give_up};

const struct route route_frame = {
    .steps = FRAME_STEPS, .settle = retry, .next = &moved_frame};

const struct route route_pool = {
    .steps = {[TRANSFER_CHECK] = check,
              [TRANSFER_OPEN] = open_pooled,
              [TRANSFER_BRING] = read_pooled,
              [TRANSFER_WRITE] = transfer_write,
              [TRANSFER_COMMIT] = transfer_commit},
};

/* ---- Files that peers have sent plain, into a packed Tier ------------------------------ */

static int check_came(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = transfer_check(ts, t, buffer);
    return rc || ts->deferred ? rc : -EINVAL; /* else no Tier is packed */
}

static int take_came(struct transfers *ts, struct transfer *t, uint8_t *buffer)
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

/* settle - drops the bytes: also those of a File that could not be begun. */
static int settle_came(struct transfers *ts, struct transfer *t, int rc)
{
    if (!t->came && ts->deferred)
        t->came = deferred_take(ts, &t->order);
    if (t->came)
        deferred_done(ts, t->came);
    return rc;
}

const struct route route_came = {
    .steps = {[TRANSFER_CHECK] = check_came,
              [TRANSFER_OPEN] = take_came,
              [TRANSFER_WRITE] = compress,
              [TRANSFER_COMMIT] = transfer_commit},
    .settle = settle_came,
};
