/* transfer_steps.c - the steps of a Transfer from its order to its completion, chunk by
 * chunk.
 *
 * The checksum and the seal of each Extent are computed while its bytes pass and kept
 * as long as the agent lives: peers get them with the bytes, so that the server needs
 * not read the bytes and can use sendfile(). Checksums also go to the manifest of a
 * retained Tier; seals do not, as the next job has another key. Where there are seals
 * and no Tier is retained, checksums are not computed: they cost half as much as seals.
 */
#include "dataplane/transfers/transfer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/pool.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

/* A read that takes longer is not followed by one as large. */
static const uint64_t READ_NS_MAX = SECOND_NS / 4;

/* transfer_init - sets an idle Transfer to its order. */
void transfer_init(struct transfer *t, const struct monarch_order *order)
{
    memset(t, 0, sizeof(*t));
    t->order = *order;
    t->source = t->target = -1;
    t->chunks = 1;
}

/* locate - copies the identity of the File; -EINVAL: no such File, Tier or kind. */
static int locate(struct transfers *ts, struct transfer *t)
{
    const struct catalog *cat = ts->job->catalog;
    uint32_t file = t->order.file;
    if (t->order.tier >= cat->tier_count)
        return -EINVAL;
    int rc = origin_find(ts->job, file, &t->original);
    if (rc)
        return rc;
    t->tier = ts->job->tiers[t->order.tier];
    t->tier_dev = cat->tiers[t->order.tier].dev;
    t->digest = ts->options.digests + ts->options.digest_first[file];
    t->first_digest = t->digest;
    catalog_replica_name(cat, file, t->name);
    return 0;
}

/* transfer_open_origin - opens the source at the origin and compares it with the Catalog. */
int transfer_open_origin(struct transfers *ts, struct transfer *t)
{
    int fd = origin_open(ts->job, &t->original);
    t->step = t->original.step;
    t->source = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

/* transfer_origin_same - see origin_same(). */
int transfer_origin_same(struct transfer *t)
{
    t->step = MONARCH_STEP_STAT;
    return origin_same(&t->original, t->source);
}

/* transfer_origin_unchanged - see origin_unchanged(). */
int transfer_origin_unchanged(struct transfer *t)
{
    t->step = MONARCH_STEP_STAT;
    return origin_unchanged(&t->original, t->source);
}

/* transfer_drop_pages - see origin_drop(). */
void transfer_drop_pages(const struct transfers *ts, const struct transfer *t,
                         uint64_t offset, uint64_t n)
{
    const struct origin_range read = {t->source, offset, n};
    origin_drop(ts->job, &t->original, &read);
}

/* transfer_written - the File is marked *written*: it must not be staged or served. */
bool transfer_written(const struct transfers *ts, const struct transfer *t)
{
    return written_load(ts->job->flags, t->original.root, t->order.file);
}

/* transfer_prepare - begins a Transfer from any Source. -EINVAL: see locate(); -ESTALE:
 * the File is marked *written*; else the error of the Tier. */
int transfer_prepare(struct transfers *ts, struct transfer *t)
{
    t->begun = true;
    t->step = MONARCH_STEP_ORDER;
    int rc = locate(ts, t);
    if (rc)
        return rc;
    if (t->tier < 0) {
        t->step = MONARCH_STEP_CREATE;
        return t->tier;
    }
    return transfer_written(ts, t) ? -ESTALE : 0;
}

/* extent_begin - begins an Extent. Its seal has the nonce of the peer's seal, with
 * which it is to be compared, or a new one if `peers` is NULL. */
int extent_begin(struct transfers *ts, struct transfer *t,
                 const struct monarch_seal *peers)
{
    uint32_t extent = (uint32_t)(t->offset / EXTENT_BYTES);
    const struct extent_name name = {.file = t->order.file,
                                     .extent = extent,
                                     .bytes = extent_bytes(t->original.size, extent)};
    int rc = 0;
    if (!ts->sealer)
        return 0;
    if (peers)
        t->seal = *peers;
    else
        rc = seal_nonce(&t->seal);
    return rc ? rc : seal_begin(ts->sealer, &name, &t->seal, &t->sealing);
}

/* extent_add - adds the next bytes: chunks of CHUNK_BYTES, but for the last one of an
 * Extent. */
int extent_add(struct transfers *ts, struct transfer *t, const void *bytes, size_t n)
{
    if (!ts->options.seals_only || transfer_is_local(t) || t->frame || t->came)
        t->chain = xxh3(bytes, n, t->chain);
    return t->sealing ? seal_add(t->sealing, bytes, n) : 0;
}

/* extent_end - ends an Extent: `chain` and the tag of `seal` are complete. */
int extent_end(struct transfer *t)
{
    return t->sealing ? seal_end(&t->sealing, t->seal.tag) : 0;
}

/* extent_store - stores checksum and seal for the peer server and goes on to the next
 * Extent. The lock is for a File that is staged again: a mixture of an old and a new
 * seal would make this node look like a forger. */
void extent_store(struct transfers *ts, struct transfer *t)
{
    uint64_t place = (uint64_t)(t->digest - ts->options.digests);
    __atomic_store_n(t->digest++, t->chain, __ATOMIC_RELAXED);
    t->chain = 0;
    if (!ts->sealer)
        return;
    pthread_mutex_lock(&ts->seals_lock);
    ts->options.seals[place] = t->seal;
    pthread_mutex_unlock(&ts->seals_lock);
}

/* extent_seal - the stored seal; all zero where this node makes none. */
struct monarch_seal extent_seal(struct transfers *ts, uint64_t place)
{
    struct monarch_seal seal = {0};
    if (!ts->sealer)
        return seal;
    pthread_mutex_lock(&ts->seals_lock);
    seal = ts->options.seals[place];
    pthread_mutex_unlock(&ts->seals_lock);
    return seal;
}

static int begin(struct transfers *ts, struct transfer *t)
{
    int rc = transfer_prepare(ts, t);
    if (rc)
        return rc;
    if (transfer_adopts(t))
        return replica_file_adopt(t, ts->job->euid);
    rc = transfer_open_origin(ts, t);
    return rc ? rc : replica_file_create(ts, t);
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

/* transfer_publish - the last step of every Transfer. */
int transfer_publish(struct transfers *ts, struct transfer *t)
{
    if (job_stopping(ts->job))
        return -ECANCELED;
    t->step = MONARCH_STEP_PUBLISH;
    int rc = transfer_written(ts, t) ? -ESTALE : replica_file_publish(ts, t);
    if (rc || !ts->pool || !table_is_pool(ts->table, t->order.tier))
        return rc;
    pool_published(ts->pool, t->order.file,
                   STATE_NEXT(t->order.word, REPLICA_READY, t->order.tier, t->from));
    if (!t->came)
        packing_note(ts, t->order.file);
    return 0;
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

/* transfer_end - closes the files of a Transfer and fills in its completion. A failed
 * copy leaves no file; an adopted Replica with a wrong checksum is removed. */
void transfer_end(struct transfer *t, int status)
{
    seal_drop(&t->sealing);
    frame_free(&t->frame);
    frame_free(&t->came);
    if (t->source >= 0)
        close(t->source);
    if (t->target >= 0)
        close(t->target);
    if (t->named)
        unlinkat(t->tier, t->temporary, 0);
    if (status == -EBADMSG && transfer_adopts(t))
        unlinkat(t->tier, t->name, 0);
    t->source = t->target = -1;
    t->named = false;
    t->completion = (struct monarch_completion){
        .file = t->order.file,
        .tier = t->order.tier,
        .kind = t->order.kind,
        .step = t->step,
        .peer = t->order.peer,
        .word = t->order.word,
        .status = status,
        .pages = t->order.page_count,
        .bytes = t->bytes,
        .ns = t->ns,
        .ended_ns = clock_ns(),
    };
}
