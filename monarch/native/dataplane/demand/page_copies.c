/* page_copies.c - copies Pages of large Files from the origin, and completes their Extents.
 *
 * The origin's file is compared with the Catalog after each piece, before programs see its Pages.
 * When the last Page of an Extent is present, the Extent is read once more from the Tier for its
 * checksum and its seal, and each of its Blocks must still match the bytes from the origin. When
 * the last Extent has them, the Replica is published as any other.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/demand/demand.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

enum {
    CHUNK_BLOCKS = CHUNK_BYTES / BLOCK_BYTES,
    HEAD_PAGES = CHUNK_BYTES / PAGE_BYTES,
    FIRST_RANGES_MAX = 2, /* of Pages, after the first ones */
    PROGRESS_BYTES = 64 << 10,
};

static ssize_t read_at(int fd, uint8_t *buffer, size_t n, uint64_t offset)
{
    for (;;) {
        ssize_t got = pread(fd, buffer, n, (off_t)offset);
        if (got >= 0 || errno != EINTR)
            return got < 0 ? -errno : got;
    }
}

/* piece_of - returns a number that changes with each piece read from a slow origin. */
static uint32_t piece_of(uint64_t offset)
{
    return (uint32_t)(offset / PROGRESS_BYTES) + 1;
}

/* read_piece - reads up to n bytes, `want` of which are enough, in smaller pieces if the origin is
 * slow. */
static ssize_t read_piece(struct demand *d, struct transfer *t, uint8_t *buffer,
                          size_t n, size_t want)
{
    size_t got = 0;
    while (got < want) {
        size_t piece = health_piece(d->transfers, t, n - got);
        uint64_t began = clock_ns();
        ssize_t more = read_at(t->read.fd, buffer + got, piece, t->read.offset + got);
        health_note_step(d->transfers, t);
        if (more <= 0)
            return more ? more : (ssize_t)got;
        health_note_piece(d->transfers, t, (size_t)more, clock_ns() - began);
        got += (size_t)more;
        progress_store(d->job->requests, t->order.file,
                       progress_at(piece_of(t->read.offset + got)));
    }
    return (ssize_t)got;
}

/* fetch - reads the bytes of a run from the origin, which must match the Catalog. */
static int fetch(struct demand *d, struct transfer *t, uint8_t *buffer, size_t want)
{
    bool last = t->read.offset + want == t->original.size;
    readers_enter(d->transfers, t);
    uint64_t began = clock_ns();
    t->step = MONARCH_STEP_READ;
    ssize_t got = read_piece(d, t, buffer, want + last, want);
    if (got < 0)
        return (int)got;
    transfer_drop_pages(d->transfers, t, t->read.offset, (uint64_t)got);
    if (want >= CHUNK_BYTES)
        transfer_note_read(d->transfers, t, clock_ns() - began,
                           (uint32_t)(want / CHUNK_BYTES));
    transfer_count_read(d->transfers, t, (uint64_t)got);
    if (job_stopping(d->job))
        return -ECANCELED;
    if (transfer_written(d->transfers, t) || (size_t)got != want)
        return -ESTALE;
    return transfer_origin_same(t); /* publish() asks the server if needed */
}

/* verify_piece - compares a piece of a complete Extent with its checksums. */
static int verify_piece(struct transfer *t, uint8_t *buffer, size_t n)
{
    uint64_t digests[CHUNK_BLOCKS];
    const uint64_t *kept = t->partial->digests + t->read.offset / BLOCK_BYTES;
    ssize_t got = read_at(t->file.fd, buffer, n, t->read.offset);
    if (got < 0)
        return (int)got;
    if ((size_t)got != n)
        return -EBADMSG;
    blocks_digest(buffer, n, digests);
    for (size_t i = 0; i * BLOCK_BYTES < n; i++)
        if (digests[i] != kept[i])
            return -EBADMSG;
    return 0;
}

/* finish_extent - computes the checksum and the seal of an Extent that is complete. */
static int finish_extent(struct demand *d, struct transfer *t, uint32_t extent,
                         uint8_t *buffer)
{
    uint64_t end = (uint64_t)(extent + 1) * EXTENT_BYTES;
    end = end < t->original.size ? end : t->original.size;
    t->step = MONARCH_STEP_VERIFY;
    t->read.offset = (uint64_t)extent * EXTENT_BYTES;
    t->sum.at = d->transfers->options.digests +
                d->transfers->options.digest_first[t->order.file] + extent;
    t->sum.chain = 0;
    int rc = extent_begin(d->transfers, t);
    while (!rc && t->read.offset < end) {
        uint64_t left = end - t->read.offset;
        size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        rc = verify_piece(t, buffer, n);
        rc = rc ? rc : extent_add(d->transfers, t, buffer, n);
        t->read.offset += n;
    }
    rc = rc ? rc : sum_end(&t->sum);
    if (!rc)
        extent_store(d->transfers, t);
    return rc;
}

/* publish - completes the file as a Replica, and makes it READY. Bytes from peers were compared
 * with the origin by these. */
static int publish(struct demand *d, struct transfer *t)
{
    bool compared = atomic_load(&t->partial->from_origin);
    int rc = compared ? partial_borrow(d->transfers, t, 0, true) : 0;
    if (!rc && compared) {
        rc = transfer_origin_unchanged(t);
        transfer_drop_pages(
            d->transfers, t, 0,
            t->original.size); /* also read-ahead that arrived earlier */
    }
    rc = rc ? rc : replica_file_verify(t);
    rc = rc ? rc : transfer_publish(d->transfers, t);
    if (!rc)
        partial_end(d->partials, t->partial, 0);
    return rc;
}

/* pages_end_extent - ends a complete Extent: the last one publishes the Replica. */
int pages_end_extent(struct demand *d, struct transfer *t, uint32_t extent,
                     uint8_t *buffer)
{
    int rc = finish_extent(d, t, extent, buffer);
    return rc || !partial_extent_finished(d->partials, t->partial, extent)
               ? rc
               : publish(d, t);
}

/* An HDF5 file has tables near its begin, and the newest ones at its end; its readers follow them
 * one by one, and each would be a round trip of its own. At most 1.25 MiB more are read. Parquet
 * would gain nothing: its readers begin with the footer, and mostly do not read the rest of the
 * last MiB next. */
struct magic { /* bytes of a file by which its format is recognised */
    size_t at, count;
    char bytes[8];
};

static const struct magic HDF5 = {0, 8, "\x89HDF\r\n\x1a\n"};
static bool has(const uint8_t *bytes, const struct magic *magic)
{
    return memcmp(bytes + magic->at, magic->bytes, magic->count) == 0;
}

/* first_pages - finds the Pages that programs want after the first Page of a File, as far as this
 * node reads them from the origin; returns the number of ranges. */
static uint32_t first_pages(const struct demand *d, const struct transfer *t,
                            const uint8_t *bytes,
                            struct page_range out[FIRST_RANGES_MAX])
{
    const uint32_t pages = t->partial->pages, large = t->partial->large;
    const uint32_t last = (pages - 1) / BLOCK_PAGES * BLOCK_PAGES;
    const struct page_range wanted[] = {{large, last, pages - last},
                                        {large, 1, HEAD_PAGES - 1}};
    bool asked = t->order.page_count && order_class(t->order.kind) == CLASS_DEMAND;
    uint32_t n = 0;
    if (!asked || !has(bytes, &HDF5))
        return 0;
    for (size_t i = 0; i < FIRST_RANGES_MAX; i++) {
        struct monarch_order order = {.file = t->order.file,
                                      .first_page = wanted[i].first};
        if (table_page_source(d->table, &order) && order.peer == NO_PEER)
            out[n++] = wanted[i];
    }
    return n;
}

/* begin_file - chooses what else to copy of a File from its first Page. */
static void begin_file(struct demand *d, struct transfer *t, const uint8_t *bytes)
{
    struct page_range wanted[FIRST_RANGES_MAX];
    uint32_t n = first_pages(d, t, bytes, wanted);
    for (uint32_t i = 0; i < n; i++)
        pages_requested(d, wanted[i], false);
}

/* digest_block - computes the checksum of a Block that arrived piecemeal. Returns 1 if that
 * completes an Extent whose File will be READY, 0 if not, or -errno. */
static int digest_block(struct demand *d, struct transfer *t, uint32_t block,
                        uint8_t *buffer)
{
    size_t n = (size_t)blocks_bytes(t->original.size, block, 1);
    t->step = MONARCH_STEP_VERIFY;
    ssize_t got = read_at(t->file.fd, buffer, n,
                          (uint64_t)block * BLOCK_BYTES - t->file.shift);
    if (got < 0)
        return (int)got;
    if ((size_t)got != n)
        return -EBADMSG;
    return partial_digested(d->partials, t->partial, block, buffer, n);
}

/* give_up - handles a Block whose bytes in the Tier differ from those that arrived: an Extent
 * in the Pool is copied again. */
static int give_up(struct demand *d, struct transfer *t, const struct arrival *a,
                   int rc)
{
    uint32_t extent = a->undigested[0] / EXTENT_BLOCKS;
    for (uint32_t i = 0; i < a->undigested_count; i++)
        partial_unclaim(
            d->partials, t->partial,
            blocks_pages(t->partial, (struct block_run){a->undigested[i], 1}), false);
    if (rc != -EBADMSG || !(partial_place(t->partial, extent) & PLACE_FILE))
        return rc;
    table_count(d->table, &(struct monarch_tally){.frames_dropped = 1});
    partial_give_up_extent(d->partials, t->partial, extent);
    return 0;
}

/* arrive - makes Pages that were written to the Tier visible to programs. */
static int arrive(struct demand *d, struct transfer *t, struct page_run run,
                  uint8_t *buffer)
{
    struct arrival a = partial_arrived(d->partials, t->partial, run, buffer,
                                       t->file.removals);
    bool complete = a.complete;
    table_count_pages(d->table, NO_PEER, a.bytes);
    for (uint32_t i = 0; i < a.undigested_count; i++) {
        int rc = digest_block(d, t, a.undigested[i], buffer);
        if (rc < 0)
            return give_up(d, t, &a, rc);
        complete = complete || rc;
    }
    return complete ? pages_end_extent(d, t, run.first / EXTENT_PAGES, buffer) : 0;
}

/* pages_copy - copies Pages of one Extent that this Transfer has claimed. */
int pages_copy(struct demand *d, struct transfer *t, struct page_run run,
               uint8_t *buffer)
{
    t->read.offset = (uint64_t)run.first * PAGE_BYTES;
    size_t want = (size_t)pages_bytes(t->original.size, run.first, run.count);
    int rc = partial_borrow(d->transfers, t, run.first / EXTENT_PAGES, true);
    rc = rc ? rc : fetch(d, t, buffer, want);
    if (!rc) {
        t->step = MONARCH_STEP_WRITE;
        rc = file_write_at(t->file.fd, buffer, want, t->read.offset - t->file.shift);
    }
    if (rc) {
        partial_unclaim(d->partials, t->partial, run, rc != -ECANCELED);
        return rc;
    }
    atomic_store(&t->partial->from_origin, true);
    if (run.first == 0)
        begin_file(d, t, buffer);
    return arrive(d, t, run, buffer);
}
