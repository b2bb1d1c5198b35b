/* origin_route.c - the Source "origin" for whole Files, and the check of Replicas of an earlier
 * job. */
#include "dataplane/transfers/transfer.h"

#include <errno.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

/* After a longer read, the next one is a single chunk. */
static const uint64_t READ_NS_MAX = SECOND_NS / 4;

/* open_origin - opens the origin, and creates the Replica or the frame. */
static int open_origin(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    progress_store(ts->job->requests, t->order.file, PROGRESS_BEGUN);
    int rc = transfer_open_origin(ts, t);
    return rc ? rc : replica_file_create(ts, t);
}

static int open_retained(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    return replica_file_adopt(t, ts->job->euid);
}

/* end_extent - stores checksum and seal of an Extent; an adopted Replica must have the checksum
 * that the earlier job has stored. */
static int end_extent(struct transfers *ts, struct transfer *t)
{
    int rc = sum_end(&t->sum);
    if (!rc && transfer_adopts(t)) {
        t->step = MONARCH_STEP_VERIFY;
        rc = *t->sum.at == t->sum.chain ? 0 : -EBADMSG;
    }
    if (!rc)
        extent_store(ts, t);
    return rc;
}

/* transfer_note_read - notes the duration of a read of whole chunks. While reads for a waiting
 * program are fast, the next one is larger, which saves requests; a long read would look like an
 * origin that does not answer. */
void transfer_note_read(struct transfers *ts, struct transfer *t, uint64_t ns,
                        uint32_t chunks)
{
    if (order_class(t->order.kind) != CLASS_DEMAND)
        return;
    for (uint32_t i = 0; i < chunks; i++)
        pace_chunk(ts, t, ns / chunks);
    if (ns > READ_NS_MAX)
        t->read.chunks = 1;
    else if (ns <= READ_NS_MAX / 2 && t->read.chunks < READ_CHUNKS_MAX)
        t->read.chunks *= 2;
}

/* read_chunks - reads up to n bytes, `want` of which are enough; returns the number of bytes read,
 * or -errno. */
static ssize_t read_chunks(struct transfers *ts, struct transfer *t, uint8_t *buffer,
                           size_t n, size_t want)
{
    const uint64_t began = clock_ns();
    uint64_t before, now = began;
    size_t got = 0, piece, enough;
    ssize_t n_read;
    do {
        before = now;
        piece = health_piece(ts, t, n - got);
        enough = piece < want - got ? piece : want - got;
        n_read = file_read(t->read.fd, buffer + got, piece, enough);
        if (n_read < 0)
            return n_read;
        got += (size_t)n_read;
        now = clock_ns();
        if (!transfer_adopts(t)) /* else it is no read of the origin */
            health_note_piece(ts, t, (size_t)n_read, now - before);
        if (piece < n)
            health_note_step(ts, t);
    } while ((size_t)n_read == piece && got < n);
    if (n >= CHUNK_BYTES)
        transfer_note_read(ts, t, now - began, (uint32_t)(n / CHUNK_BYTES));
    return (ssize_t)got;
}

/* transfer_add - writes the next chunk, and adds it to checksum and seal. */
int transfer_add(struct transfers *ts, struct transfer *t, const uint8_t *bytes,
                 size_t n)
{
    int rc = t->read.offset % EXTENT_BYTES ? 0 : extent_begin(ts, t);
    rc = rc ? rc : extent_add(ts, t, bytes, n);
    if (!rc && transfer_adopts(t))
        partial_note_adopted(ts->partials, &t->order, bytes, n, t->read.offset);
    else if (!rc)
        rc = replica_file_write(ts, t, bytes, n);
    if (rc)
        return rc;
    t->read.offset += n;
    return t->read.offset % EXTENT_BYTES == 0 || t->read.offset == t->original.size
               ? end_extent(ts, t)
               : 0;
}

/* next_bytes - returns how many bytes to read next: they end at a multiple of their number. */
static size_t next_bytes(const struct transfer *t)
{
    uint64_t left = t->original.size - t->read.offset,
             whole = (uint64_t)t->read.chunks * CHUNK_BYTES;
    uint64_t n = whole - t->read.offset % whole;
    return left < n ? left : n;
}

/* transfer_count_read - counts bytes read from the origin before the File can be seen READY: the
 * report never counts less than was staged. */
void transfer_count_read(struct transfers *ts, struct transfer *t, uint64_t bytes)
{
    t->spent.bytes += bytes;
    if (ts->table)
        table_count(ts->table, &(struct monarch_tally){.origin_read_bytes = bytes});
}

/* read_next - reads some chunks. The read that should reach the end requests one byte more and
 * must not get it. */
static int read_next(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->read.offset;
    size_t want = next_bytes(t);
    t->read.piece = 0;
    if (!left)
        return 0;
    t->step = MONARCH_STEP_READ;
    readers_enter(ts, t);
    ssize_t got = read_chunks(ts, t, buffer, want + (want == left), want);
    if (got < 0)
        return (int)got;
    if (!transfer_adopts(t))
        transfer_count_read(ts, t, (uint64_t)got);
    transfer_drop_pages(ts, t, t->read.offset, (uint64_t)got);
    if (job_stopping(ts->job))
        return -ECANCELED;
    if (transfer_written(ts, t)) /* perhaps by a program on another node */
        return -ESTALE;
    if ((size_t)got != want)
        return transfer_adopts(t) ? -EBADMSG : -ESTALE;
    t->read.piece = want;
    return 0;
}

/* transfer_write - writes the piece that was read, and adds it to checksum and seal. */
int transfer_write(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = 0;
    if (!t->read.piece)
        return 0;
    for (size_t n, done = 0; !rc && done < t->read.piece; done += n) {
        size_t left = t->read.piece - done;
        n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        rc = transfer_add(ts, t, buffer + done, n);
    }
    progress_store(ts->job->requests, t->order.file, progress_of(t->read.offset));
    return rc || t->read.offset == t->original.size ? rc : STEP_MORE;
}

/* end_empty - ends the one Extent of an empty File. */
static int end_empty(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    if (t->original.size)
        return 0;
    int rc = extent_begin(ts, t);
    return rc ? rc : end_extent(ts, t);
}

/* verify_copy - checks that the origin did not change meanwhile, and that the copy is complete. */
static int verify_copy(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = end_empty(ts, t, buffer);
    rc = rc ? rc : transfer_origin_unchanged(t);
    return rc ? rc : replica_file_verify(t);
}

const struct route route_origin = {
    .steps = {[TRANSFER_CHECK] = transfer_check,
              [TRANSFER_OPEN] = open_origin,
              [TRANSFER_BRING] = read_next,
              [TRANSFER_WRITE] = transfer_write,
              [TRANSFER_VERIFY] = verify_copy,
              [TRANSFER_COMMIT] = transfer_commit},
};

const struct route route_retained = {
    .steps = {[TRANSFER_CHECK] = transfer_check,
              [TRANSFER_OPEN] = open_retained,
              [TRANSFER_BRING] = read_next,
              [TRANSFER_WRITE] = transfer_write,
              [TRANSFER_VERIFY] = end_empty,
              [TRANSFER_COMMIT] = transfer_commit},
};
