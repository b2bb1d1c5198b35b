/* blocks.c - Transfers of Blocks: those that programs ask for, or all that a large File
 * lacks.
 *
 * The origin's file is compared with the Catalog after each piece, before programs see its
 * Blocks. When the last Block of an Extent is there, the Extent is read once more from the
 * Tier for its checksum and its seal, and each of its Blocks must still be what came from
 * the origin. When the last Extent has them, the Replica is published as any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/partial.h"
#include "dataplane/staging_table.h"
#include "dataplane/syscalls.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

enum {
    CHUNK_BLOCKS = CHUNK_BYTES / BLOCK_BYTES,
    READ_BLOCKS_MAX = READ_CHUNKS_MAX * CHUNK_BLOCKS,
    UNFINISHED = 1,
};

/* ---- its files ------------------------------------------------------------------- */

/* create - the sparse file under the name of the Replica. One of that name was left by an
 * agent that was killed. */
static int create(struct transfer *t, const struct partial *p)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL;
    t->step = MONARCH_STEP_CREATE;
    int fd = file_openat(t->tier, p->name, flags, 0400);
    if (fd == -EEXIST && unlinkat(t->tier, p->name, 0) == 0)
        fd = file_openat(t->tier, p->name, flags, 0400);
    if (fd >= 0 && ftruncate(fd, (off_t)t->size)) {
        int error = -errno;
        unlinkat(t->tier, p->name, 0);
        close(fd);
        return error;
    }
    return fd;
}

/* reopen - the file once more, which is read-only for all but root. */
static int reopen(const struct transfer *t, const struct partial *p)
{
    int fd = file_openat(t->tier, p->name, O_RDWR, 0);
    if (fd != -EACCES || fchmodat(t->tier, p->name, 0600, 0))
        return fd;
    fd = file_openat(t->tier, p->name, O_RDWR, 0);
    int rc = fchmodat(t->tier, p->name, 0400, 0) ? -errno : 0;
    if (rc && fd >= 0)
        close(fd);
    return rc && fd >= 0 ? rc : fd;
}

/* open_target - -EBADMSG: the file was replaced since it was created. */
static int open_target(struct transfer *t, struct partial *p)
{
    struct stat st;
    int fd = p->ino ? reopen(t, p) : create(t, p);
    t->step = MONARCH_STEP_CREATE;
    if (fd < 0)
        return fd;
    int rc = fstat(fd, &st) ? -errno : 0;
    if (!rc && (st.st_dev != t->tier_dev || (p->ino && st.st_ino != p->ino) ||
                (uint64_t)st.st_size != t->size))
        rc = -EBADMSG;
    if (rc) {
        close(fd);
        return rc;
    }
    p->ino = st.st_ino;
    return fd;
}

/* open_files - opens both files; the lock of their opening is held. */
static int open_files(struct engine *e, struct transfer *t, struct partial *p)
{
    if (p->target >= 0)
        return 0;
    int rc = origin_open(e, t);
    int target = rc ? rc : open_target(t, p);
    if (target < 0) {
        if (t->source >= 0)
            close(t->source);
        t->source = -1;
        return target;
    }
    partial_opened(e, p, t->source, target);
    return 0;
}

/* borrow - the files of the partial Replica for one step of a Transfer. */
static int borrow(struct engine *e, struct transfer *t)
{
    struct partial *p = t->partial;
    pthread_mutex_lock(&p->opening);
    int rc = open_files(e, t, p);
    t->source = rc ? -1 : p->source;
    t->target = rc ? -1 : p->target;
    pthread_mutex_unlock(&p->opening);
    return rc;
}

/* ---- copying ----------------------------------------------------------------------- */

static ssize_t read_at(int fd, uint8_t *buffer, size_t n, uint64_t offset)
{
    for (;;) {
        ssize_t got = pread(fd, buffer, n, (off_t)offset);
        if (got >= 0 || errno != EINTR)
            return got < 0 ? -errno : got;
    }
}

/* read_piece - reads up to n bytes, `want` of which are enough, in smaller pieces where the
 * origin is slow. */
static ssize_t read_piece(struct engine *e, struct transfer *t, uint8_t *buffer,
                          size_t n, size_t want)
{
    size_t got = 0;
    while (got < want) {
        size_t piece = health_piece(e, t, n - got);
        ssize_t more = read_at(t->source, buffer + got, piece, t->offset + got);
        health_note_step(e, t);
        if (more <= 0)
            return more ? more : (ssize_t)got;
        got += (size_t)more;
    }
    return (ssize_t)got;
}

static int write_at(int fd, const uint8_t *bytes, size_t n, uint64_t offset)
{
    size_t put = 0;
    while (put < n) {
        ssize_t more = pwrite(fd, bytes + put, n - put, (off_t)(offset + put));
        if (more > 0)
            put += (size_t)more;
        else if (more == 0)
            return -ENOSPC;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

/* fetch - the bytes of a run from the origin, which must be what the Catalog says. */
static int fetch(struct engine *e, struct transfer *t, uint8_t *buffer, size_t want)
{
    bool last = t->offset + want == t->size;
    uint64_t began = clock_ns();
    t->step = MONARCH_STEP_READ;
    ssize_t got = read_piece(e, t, buffer, want + last, want);
    if (got < 0)
        return (int)got;
    if (want >= CHUNK_BYTES)
        transfer_note_read(e, t, clock_ns() - began, (uint32_t)(want / CHUNK_BYTES));
    t->bytes += (uint64_t)got;
    if (engine_stopping(e))
        return -ECANCELED;
    if (transfer_written(e, t) || (size_t)got != want)
        return -ESTALE;
    return origin_same(t); /* the server itself is asked before it is published */
}

static void digest_blocks(const uint8_t *bytes, size_t n, uint64_t *out)
{
    for (size_t at = 0; at < n; at += BLOCK_BYTES)
        *out++ = xxh3(bytes + at, n - at < BLOCK_BYTES ? n - at : BLOCK_BYTES, 0);
}

/* verify_piece - a piece of a complete Extent is in the Tier as it came. */
static int verify_piece(struct transfer *t, uint8_t *buffer, size_t n)
{
    uint64_t digests[CHUNK_BLOCKS];
    const uint64_t *kept = t->partial->digests + t->offset / BLOCK_BYTES;
    ssize_t got = read_at(t->target, buffer, n, t->offset);
    if (got < 0)
        return (int)got;
    if ((size_t)got != n)
        return -EBADMSG;
    digest_blocks(buffer, n, digests);
    for (size_t i = 0; i * BLOCK_BYTES < n; i++)
        if (digests[i] != kept[i])
            return -EBADMSG;
    return 0;
}

/* finish_extent - computes the checksum and the seal of an Extent that is complete. */
static int finish_extent(struct engine *e, struct transfer *t, uint32_t extent,
                         uint8_t *buffer)
{
    uint64_t end = (uint64_t)(extent + 1) * EXTENT_BYTES;
    end = end < t->size ? end : t->size;
    t->step = MONARCH_STEP_VERIFY;
    t->offset = (uint64_t)extent * EXTENT_BYTES;
    t->digest = e->options.digests + e->options.digest_first[t->order.file] + extent;
    t->chain = 0;
    int rc = extent_begin(e, t, NULL);
    while (!rc && t->offset < end) {
        uint64_t left = end - t->offset;
        size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        rc = verify_piece(t, buffer, n);
        rc = rc ? rc : extent_add(e, t, buffer, n);
        t->offset += n;
    }
    rc = rc ? rc : extent_end(t);
    if (!rc)
        extent_store(e, t);
    return rc;
}

/* publish - gives the complete file what a Replica has, and makes it READY. */
static int publish(struct engine *e, struct transfer *t)
{
    int rc = origin_unchanged(t);
    rc = rc ? rc : replica_file_verify(t);
    rc = rc ? rc : transfer_publish(e, t);
    if (!rc)
        partial_end(e, t->partial, 0);
    return rc;
}

/* copy_run - copies Blocks of one Extent that this Transfer has claimed. */
static int copy_run(struct engine *e, struct transfer *t, struct block_run run,
                    uint8_t *buffer)
{
    uint64_t digests[READ_BLOCKS_MAX], left;
    t->offset = (uint64_t)run.first * BLOCK_BYTES;
    left = t->size - t->offset;
    size_t want = (size_t)run.count * BLOCK_BYTES;
    want = want < left ? want : (size_t)left;
    int rc = fetch(e, t, buffer, want);
    if (!rc) {
        t->step = MONARCH_STEP_WRITE;
        rc = write_at(t->target, buffer, want, t->offset);
    }
    if (rc) {
        partial_unclaim(e, t->partial, run, rc != -ECANCELED);
        return rc;
    }
    digest_blocks(buffer, want, digests);
    progress_store(e->requests, t->order.file, run.first + run.count);
    if (!partial_set(e, t->partial, run, digests))
        return 0;
    rc = finish_extent(e, t, run.first / EXTENT_BLOCKS, buffer);
    if (rc || !partial_extent_finished(e, t->partial))
        return rc;
    return publish(e, t);
}

/* ---- the Transfer ---------------------------------------------------------------- */

static int begin(struct engine *e, struct transfer *t)
{
    t->begun = true;
    int rc = partial_enter(e, &t->order, &t->partial);
    if (rc)
        return rc;
    t->next_block = t->order.first_block;
    t->end_block = t->order.first_block + t->order.block_count;
    if (t->order.block_count)
        table_busy(e->table, true);
    return transfer_prepare(e, t);
}

/* copy_asked - the Blocks that programs have asked for, which are claimed already. */
static int copy_asked(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    int rc = 0;
    while (!rc && t->next_block < t->end_block) {
        uint32_t left = t->end_block - t->next_block;
        struct block_run run = {t->next_block, left};
        run.count = left < CHUNK_BLOCKS ? left : CHUNK_BLOCKS;
        t->next_block += run.count;
        rc = copy_run(e, t, run, buffer);
        health_note_step(e, t);
    }
    return rc;
}

/* next_count - how many Blocks to read next: they end at a multiple of their number. */
static uint32_t next_count(const struct transfer *t)
{
    uint32_t most = t->chunks * CHUNK_BLOCKS;
    return most - t->next_block % most;
}

/* copy_missing - all that nobody else copies; one piece of it as background. */
static int copy_missing(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    for (;;) {
        struct block_run run = partial_claim_next(e, t->partial, t->next_block,
                                                  next_count(t));
        if (!run.count)
            return 0;
        t->next_block = run.first + run.count;
        int rc = copy_run(e, t, run, buffer);
        health_note_step(e, t);
        if (rc || order_class(t->order.kind) == CLASS_BACKGROUND)
            return rc ? rc : UNFINISHED;
    }
}

/* complete - copies what is missing, and waits for what others copy. */
static int complete(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    int rc = copy_missing(e, t, buffer);
    while (!rc && !engine_stopping(e)) {
        bool changed = partial_await(e, t->partial); /* which is no step of its own */
        if (partial_ended(e, t->partial, &rc))
            return rc;
        t->next_block = 0;
        if (changed)
            rc = copy_missing(e, t, buffer);
    }
    return rc ? rc : -ECANCELED;
}

/* give_up - what a Transfer that has failed has claimed and not copied. */
static void give_up(struct engine *e, struct transfer *t)
{
    while (t->order.block_count && t->next_block < t->end_block) {
        uint32_t left = t->end_block - t->next_block;
        partial_unclaim(e, t->partial, (struct block_run){t->next_block, left}, true);
        t->next_block += left;
    }
}

/* spares_file - an error of the origin at some Blocks, which its other Blocks may not have:
 * programs that ask for these get the origin's own answer. */
static bool spares_file(const struct transfer *t, int rc)
{
    return t->order.block_count && t->step == MONARCH_STEP_READ && rc != -ESTALE;
}

static int end(struct engine *e, struct transfer *t, int rc)
{
    struct partial *p = t->partial;
    t->source = t->target = -1; /* they are not this Transfer's */
    if (!p)                     /* of Blocks: the File has ended before */
        return t->order.block_count ? 0 : rc;
    if (t->order.block_count)
        table_busy(e->table, false);
    give_up(e, t);
    if (rc && spares_file(t, rc))
        rc = 0;
    if (rc && rc != -ECANCELED && !partial_end(e, p, rc))
        rc = 0; /* another Transfer has told it, or has published the File */
    partial_leave(e, p, !t->order.block_count);
    return rc;
}

static int run(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    int rc = t->begun ? 0 : begin(e, t);
    rc = rc ? rc : borrow(e, t);
    if (rc)
        return rc;
    return t->order.block_count ? copy_asked(e, t, buffer) : complete(e, t, buffer);
}

/* blocks_run - transfer_run() of a large File that comes from the origin. */
bool blocks_run(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc = run(e, t, buffer);
    health_note_step(e, t);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED) {
        t->source = t->target = -1;
        return false;
    }
    rc = end(e, t, rc);
    transfer_end(t, rc);
    return true;
}
