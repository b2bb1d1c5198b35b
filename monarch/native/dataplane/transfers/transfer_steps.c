/* transfer_steps.c - Transfers of small Files from the origin, and checks of Replicas that an
 * earlier job has left, chunk by chunk. */
#include "dataplane/transfers/transfer.h"

#include <errno.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

/* A read that takes longer is not followed by one as large. */
static const uint64_t READ_NS_MAX = SECOND_NS / 4;

static int begin_copy(struct transfers *ts, struct transfer *t)
{
    progress_store(ts->job->requests, t->order.file, PROGRESS_BEGUN);
    int rc = transfer_open_origin(ts, t);
    return rc ? rc : replica_file_create(ts, t);
}

static int begin(struct transfers *ts, struct transfer *t)
{
    int rc = transfer_prepare(ts, t);
    if (rc)
        return rc;
    if (transfer_adopts(t))
        return replica_file_adopt(t, ts->job->euid);
    rc = sharing_begin(ts, t);
    return rc == SHARING_NONE ? begin_copy(ts, t) : rc;
}

static int begin_counted(struct transfers *ts, struct transfer *t)
{
    int rc = begin(ts, t);
    health_note_step(ts, t);
    return rc;
}

/* end_extent - stores checksum and seal of an Extent; an adopted Replica must have the
 * checksum that the earlier job has stored. */
static int end_extent(struct transfers *ts, struct transfer *t)
{
    int rc = extent_end(t);
    if (!rc && transfer_adopts(t)) {
        t->step = MONARCH_STEP_VERIFY;
        rc = *t->digest == t->chain ? 0 : -EBADMSG;
    }
    if (!rc)
        extent_store(ts, t);
    return rc;
}

/* transfer_note_read - notes how long the read of whole chunks took. For a program that waits the
 * next read is larger while these are fast: the larger, the fewer requests, but what takes
 * long would look like an origin that does not answer. */
void transfer_note_read(struct transfers *ts, struct transfer *t, uint64_t ns,
                        uint32_t chunks)
{
    if (order_class(t->order.kind) != CLASS_DEMAND)
        return;
    for (uint32_t i = 0; i < chunks; i++)
        pace_chunk(ts, t, ns / chunks);
    if (ns > READ_NS_MAX)
        t->chunks = 1;
    else if (ns <= READ_NS_MAX / 2 && t->chunks < READ_CHUNKS_MAX)
        t->chunks *= 2;
}

/* read_chunks - reads up to n bytes, `want` of which are enough; the number of bytes
 * read, or -errno. */
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
        n_read = file_read(t->source, buffer + got, piece, enough);
        if (n_read < 0)
            return n_read;
        got += (size_t)n_read;
        now = clock_ns();
        if (!transfer_adopts(t)) /* that is no read of the origin */
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
    int rc = t->offset % EXTENT_BYTES ? 0 : extent_begin(ts, t, NULL);
    rc = rc ? rc : extent_add(ts, t, bytes, n);
    if (!rc && transfer_adopts(t))
        partial_note_adopted(ts->partials, &t->order, bytes, n, t->offset);
    else if (!rc)
        rc = replica_file_write(ts, t, bytes, n);
    if (rc)
        return rc;
    t->offset += n;
    return t->offset % EXTENT_BYTES == 0 || t->offset == t->original.size
               ? end_extent(ts, t)
               : 0;
}

/* next_bytes - what to read next: it ends at a multiple of its size. */
static size_t next_bytes(const struct transfer *t)
{
    uint64_t left = t->original.size - t->offset,
             whole = (uint64_t)t->chunks * CHUNK_BYTES;
    uint64_t n = whole - t->offset % whole;
    return left < n ? left : n;
}

/* transfer_count_read - counts what the origin has given, before anybody can see the File
 * READY: the report never tells less than was staged. */
void transfer_count_read(struct transfers *ts, struct transfer *t, uint64_t bytes)
{
    t->bytes += bytes;
    if (ts->table)
        table_count_read(ts->table, bytes);
}

/* copy_next - reads some chunks, writes them and adds them to checksum and seal. The read
 * that should reach the end requests one byte more and must not get it. */
static int copy_next(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->offset;
    size_t want = next_bytes(t), n;
    t->step = MONARCH_STEP_READ;
    readers_enter(ts, t);
    ssize_t got = read_chunks(ts, t, buffer, want + (want == left), want);
    if (got < 0)
        return (int)got;
    if (!transfer_adopts(t))
        transfer_count_read(ts, t, (uint64_t)got);
    transfer_drop_pages(ts, t, t->offset, (uint64_t)got);
    if (job_stopping(ts->job))
        return -ECANCELED;
    if (transfer_written(ts, t)) /* perhaps by a program on another node */
        return -ESTALE;
    if ((size_t)got != want)
        return transfer_adopts(t) ? -EBADMSG : -ESTALE;
    int rc = 0;
    for (size_t done = 0; !rc && done < want; done += n) {
        n = want - done < CHUNK_BYTES ? want - done : CHUNK_BYTES;
        rc = transfer_add(ts, t, buffer + done, n);
    }
    progress_store(ts->job->requests, t->order.file, progress_of(t->offset));
    return rc;
}

static int finish(struct transfers *ts, struct transfer *t)
{
    int rc = t->original.size == 0 ? extent_begin(ts, t, NULL) : 0;
    if (!rc && t->original.size == 0)
        rc = end_extent(ts, t);
    if (!rc && !transfer_adopts(t)) {
        rc = transfer_origin_unchanged(t);
        rc = rc ? rc : replica_file_verify(t);
    }
    return rc ? rc : transfer_publish(ts, t);
}

enum { UNFINISHED = 1 };

/* run - 0, -errno or UNFINISHED. */
static int run(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = t->begun ? 0 : begin_counted(ts, t);
    if (!rc && transfer_shares(t)) {
        rc = sharing_finish(ts, t, buffer);
        if (rc != -EAGAIN)
            return rc;
        rc = begin_copy(ts, t);
    }
    while (!rc && t->offset < t->original.size) {
        rc = copy_next(ts, t, buffer);
        health_note_step(ts, t);
        if (!rc && order_class(t->order.kind) == CLASS_BACKGROUND &&
            t->offset < t->original.size)
            return UNFINISHED;
    }
    return rc ? rc : finish(ts, t);
}

/* transfer_run - continues a Transfer, with a buffer of TRANSFER_BUFFER_BYTES; true
 * when it has ended. A background Transfer returns after each read to yield to
 * others. */
bool transfer_run(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc = run(ts, t, buffer);
    health_note_step(ts, t);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED)
        return false;
    transfer_end(t, rc);
    return true;
}
