/* repacking.c - Transfers between a packed Tier and the Pool, both ways.
 *
 * A packed File that is asked for is decoded into the Pool, once for all programs that open it
 * there. A File that a program has waited for is packed from the Pool.
 */
#include "dataplane/transfers/packing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/media/codec.h"
#include "dataplane/media/seal.h"
#include "dataplane/extents/staging_table.h"
#include "dataplane/base/syscalls.h"
#include "shared/progress.h"

/* read_frame - reads bytes of a frame. One that cannot be read is as one that is damaged: the
 * medium of its Tier, of which Python hears, is not that of the Transfer. */
static int read_frame(struct engine *e, const struct transfer *t, void *out, size_t n,
                      uint64_t at)
{
    const struct unpacking *u = &t->unpacking;
    ssize_t got = file_read_at(u->fd, out, n, at);
    if (got < 0)
        report_tier(e, t, u->tier, (int)got);
    return got == (ssize_t)n ? 0 : -EBADMSG;
}

/* packing_find - finds a frame of so many plain bytes and checks its head. */
int packing_find(struct engine *e, struct transfer *t, uint64_t row, uint64_t plain)
{
    struct unpacking *u = &t->unpacking;
    t->step = MONARCH_STEP_VERIFY;
    if (!packs_take(e->packs, row, u))
        return -EBADMSG;
    size_t table = frame_pieces(plain) * sizeof(uint32_t);
    struct frame_head expected = packing_head(e, t, u->tier);
    expected.plain = (uint32_t)plain;
    expected.stored = u->place.bytes - (uint32_t)sizeof(u->head);
    uint8_t bytes[sizeof(u->head) + sizeof(u->lengths)];
    size_t n = sizeof(u->head) + table;
    if (plain > EXTENT_BYTES || read_frame(e, t, bytes, n, u->place.offset))
        return -EBADMSG;
    memcpy(&u->head, bytes, sizeof(u->head));
    memcpy(u->lengths, bytes + sizeof(u->head), table);
    u->offset = u->place.offset + n;
    return frame_check(&u->head, u->lengths, &expected);
}

static int begin_unpacking(struct engine *e, struct transfer *t)
{
    uint64_t row = packs_row(e->packs, t->order.file, 0);
    t->from = SOURCE_PACK;
    int rc = packing_find(e, t, row, t->size);
    return rc ? rc : replica_file_create(e, t);
}

/* begin_packing - opens the Replica in the Pool. -ECANCELED: it has gone. */
static int begin_packing(struct engine *e, struct transfer *t)
{
    struct stat st;
    uint32_t pool = e->table->options.tiers;
    t->step = MONARCH_STEP_OPEN;
    t->source = file_openat(e->tiers[pool], t->name, O_RDONLY | O_NONBLOCK, 0);
    if (t->source < 0)
        return -ECANCELED;
    if (fstat(t->source, &st) || (uint64_t)st.st_size != t->size)
        return -ECANCELED;
    return packing_create(e, t);
}

static bool unpacks(const struct engine *e, const struct transfer *t)
{
    return table_is_pool(e->table, t->order.tier);
}

static int begin(struct engine *e, struct transfer *t)
{
    int rc = transfer_prepare(e, t);
    if (!rc && !e->packs)
        rc = -EINVAL;
    if (rc)
        return rc;
    return unpacks(e, t) ? begin_unpacking(e, t) : begin_packing(e, t);
}

/* decode - the next piece of a frame, into the buffer. */
static int decode(struct engine *e, struct transfer *t, uint8_t *buffer, size_t n)
{
    struct unpacking *u = &t->unpacking;
    uint32_t length = u->lengths[u->piece] & ~FRAME_RAW;
    bool raw = u->lengths[u->piece] & FRAME_RAW;
    uint8_t *packed = raw ? buffer : buffer + PIECE_BYTES;
    t->step = MONARCH_STEP_VERIFY;
    if (read_frame(e, t, packed, length, u->offset))
        return -EBADMSG;
    u->piece++;
    u->offset += length;
    if (raw)
        return 0;
    const struct packed_piece piece = {packs_codec(e->packs, u->tier, t->order.file),
                                       packed, length};
    return packing_decode(e, &piece, buffer, n);
}

/* packing_decode_at - any piece of a frame that was found. */
int packing_decode_at(struct engine *e, struct transfer *t, uint32_t piece,
                      uint8_t *buffer)
{
    struct unpacking *u = &t->unpacking;
    uint32_t left = u->head.plain - piece * PIECE_BYTES;
    u->offset = u->place.offset + frame_least_bytes(u->head.plain);
    for (u->piece = 0; u->piece < piece; u->piece++)
        u->offset += u->lengths[u->piece] & ~FRAME_RAW;
    return decode(e, t, buffer, left < PIECE_BYTES ? left : PIECE_BYTES);
}

/* read_plain - the next piece of a Replica in the Pool. */
static int read_plain(struct transfer *t, uint8_t *buffer, size_t n)
{
    t->step = MONARCH_STEP_READ;
    ssize_t got = file_read(t->source, buffer, n, n);
    return got == (ssize_t)n ? 0 : -ECANCELED;
}

/* step - the next piece, of PIECE_BYTES at most. */
static int step(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->size - t->offset, began = clock_ns();
    size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc = unpacks(e, t) ? decode(e, t, buffer, n) : read_plain(t, buffer, n);
    if (unpacks(e, t))
        t->unpack_ns += clock_ns() - began;
    if (engine_stopping(e))
        return -ECANCELED;
    if (!rc && transfer_written(e, t))
        rc = -ESTALE;
    rc = rc ? rc : transfer_add(e, t, buffer, n);
    progress_store(e->requests, t->order.file, progress_of(t->offset));
    return rc;
}

/* verify - what was decoded must be what was packed. */
static int verify(struct engine *e, struct transfer *t)
{
    t->step = MONARCH_STEP_VERIFY;
    if (*t->first_digest != t->unpacking.head.digest)
        return -EBADMSG;
    table_count_unpacked(e->table, t->size, t->unpack_ns);
    return replica_file_verify(t);
}

enum { UNFINISHED = 1 };

/* run - 0, -errno or UNFINISHED. */
static int run(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    int rc = t->begun ? 0 : begin(e, t);
    while (!rc && t->offset < t->size) {
        rc = step(e, t, buffer);
        health_note_step(e, t);
        if (!rc && order_class(t->order.kind) == CLASS_BACKGROUND &&
            t->offset < t->size)
            return UNFINISHED;
    }
    if (!rc && unpacks(e, t))
        rc = verify(e, t);
    return rc ? rc : transfer_publish(e, t);
}

/* has_left - the frame was not found, or is not where it was: nothing is wrong with it. */
static bool has_left(struct engine *e, const struct transfer *t)
{
    const struct frame_place *found = &t->unpacking.place;
    return unpacks(e, t) &&
           (!found->segment ||
            packs_moved(e->packs, packs_row(e->packs, t->order.file, 0), found));
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
static bool start_over(struct engine *e, struct transfer *t)
{
    if (!has_left(e, t))
        return false;
    drop_copy(t);
    return true;
}

/* give_up - a frame that is damaged is dropped. What had left before it was decoded is no
 * error: programs ask for the File again. */
static int give_up(struct engine *e, struct transfer *t)
{
    if (!has_left(e, t)) {
        packing_give_up(e, t->order.file);
        return -EBADMSG;
    }
    if (!packs_has(e->packs, packs_row(e->packs, t->order.file, 0)))
        table_forget_packed(e->table, t->order.file);
    drop_copy(t); /* before another Transfer of the File may begin */
    monarch_table_fail(e->table, &t->order, REASON_NONE, 1);
    return 0;
}

/* repacking_run - continues a Transfer between a packed Tier and the Pool, as
 * transfer_run() does others. */
bool repacking_run(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc = run(e, t, buffer);
    if (rc == -EBADMSG && start_over(e, t))
        rc = run(e, t, buffer);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED)
        return false;
    if (rc == -EBADMSG && unpacks(e, t))
        rc = give_up(e, t);
    transfer_end(t, rc);
    return true;
}
