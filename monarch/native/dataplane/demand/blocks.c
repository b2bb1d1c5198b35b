/* blocks.c - Transfers of Blocks: those that programs ask for, or all that a large File
 * lacks.
 *
 * The origin's file is compared with the Catalog after each piece, before programs see its
 * Blocks. When the last Block of an Extent is there, the Extent is read once more from the
 * Tier for its checksum and its seal, and each of its Blocks must still be what came from
 * the origin. When the last Extent has them, the Replica is published as any other.
 */
#include <errno.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/demand/demand.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

enum {
    CHUNK_BLOCKS = CHUNK_BYTES / BLOCK_BYTES,
    READ_BLOCKS_MAX = READ_CHUNKS_MAX * CHUNK_BLOCKS,
    FETCHED_BLOCKS_MAX = 2 * EXTENT_BLOCKS, /* of one File at once */
    PROGRESS_BYTES = 64 << 10,
    UNFINISHED = 1,
    UNABLE = 2,
    ROOMLESS = 3,
};

/* ---- copying ----------------------------------------------------------------------- */

static ssize_t read_at(int fd, uint8_t *buffer, size_t n, uint64_t offset)
{
    for (;;) {
        ssize_t got = pread(fd, buffer, n, (off_t)offset);
        if (got >= 0 || errno != EINTR)
            return got < 0 ? -errno : got;
    }
}

/* piece_of - changes with each piece that is read of a slow origin. */
static uint32_t piece_of(uint64_t offset)
{
    return (uint32_t)(offset / PROGRESS_BYTES) + 1;
}

/* read_piece - reads up to n bytes, `want` of which are enough, in smaller pieces where the
 * origin is slow. */
static ssize_t read_piece(struct demand *d, struct transfer *t, uint8_t *buffer,
                          size_t n, size_t want)
{
    size_t got = 0;
    while (got < want) {
        size_t piece = health_piece(d->transfers, t, n - got);
        uint64_t began = clock_ns();
        ssize_t more = read_at(t->source, buffer + got, piece, t->offset + got);
        health_note_step(d->transfers, t);
        if (more <= 0)
            return more ? more : (ssize_t)got;
        health_note_piece(d->transfers, t, (size_t)more, clock_ns() - began);
        got += (size_t)more;
        progress_store(d->job->requests, t->order.file, piece_of(t->offset + got));
    }
    return (ssize_t)got;
}

/* fetch - the bytes of a run from the origin, which must be what the Catalog says. */
static int fetch(struct demand *d, struct transfer *t, uint8_t *buffer, size_t want)
{
    bool last = t->offset + want == t->original.size;
    readers_enter(d->transfers, t);
    uint64_t began = clock_ns();
    t->step = MONARCH_STEP_READ;
    ssize_t got = read_piece(d, t, buffer, want + last, want);
    if (got < 0)
        return (int)got;
    transfer_drop_pages(d->transfers, t, t->offset, (uint64_t)got);
    if (want >= CHUNK_BYTES)
        transfer_note_read(d->transfers, t, clock_ns() - began,
                           (uint32_t)(want / CHUNK_BYTES));
    transfer_count_read(d->transfers, t, (uint64_t)got);
    if (job_stopping(d->job))
        return -ECANCELED;
    if (transfer_written(d->transfers, t) || (size_t)got != want)
        return -ESTALE;
    return transfer_origin_same(
        t); /* the server itself is asked before it is published */
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
    t->offset = (uint64_t)extent * EXTENT_BYTES;
    t->digest = d->transfers->options.digests +
                d->transfers->options.digest_first[t->order.file] + extent;
    t->chain = 0;
    int rc = extent_begin(d->transfers, t, NULL);
    while (!rc && t->offset < end) {
        uint64_t left = end - t->offset;
        size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        rc = verify_piece(t, buffer, n);
        rc = rc ? rc : extent_add(d->transfers, t, buffer, n);
        t->offset += n;
    }
    rc = rc ? rc : extent_end(t);
    if (!rc)
        extent_store(d->transfers, t);
    return rc;
}

/* publish - gives the complete file what a Replica has, and makes it READY. What peers have
 * given was compared with the origin by them. */
static int publish(struct demand *d, struct transfer *t)
{
    bool compared = atomic_load(&t->partial->from_origin);
    int rc = compared ? partial_borrow(d->transfers, t, 0, true) : 0;
    if (!rc && compared) {
        rc = transfer_origin_unchanged(t);
        transfer_drop_pages(
            d->transfers, t, 0,
            t->original.size); /* also what was read ahead and had come before */
    }
    rc = rc ? rc : replica_file_verify(t);
    rc = rc ? rc : transfer_publish(d->transfers, t);
    if (!rc)
        partial_end(d->partials, t->partial, 0);
    return rc;
}

/* end_extent - an Extent is complete: the last one publishes the Replica. */
static int end_extent(struct demand *d, struct transfer *t, uint32_t extent,
                      uint8_t *buffer)
{
    int rc = finish_extent(d, t, extent, buffer);
    return rc || !partial_extent_finished(d->partials, t->partial, extent)
               ? rc
               : publish(d, t);
}

/* begin_file - the first Block of a File has come: the rest depends on what it tells. */
static void begin_file(struct demand *d, struct transfer *t, const uint8_t *bytes)
{
    struct block_range wanted[FIRST_RANGES_MAX];
    first_bytes_came(d, t, bytes);
    uint32_t n = first_blocks(d, t, bytes, wanted);
    for (uint32_t i = 0; i < n; i++)
        blocks_requested(d, presence_request(wanted[i]), false);
}

/* copy_run - copies Blocks of one Extent that this Transfer has claimed. */
static int copy_run(struct demand *d, struct transfer *t, struct block_run run,
                    uint8_t *buffer)
{
    uint64_t digests[READ_BLOCKS_MAX];
    t->offset = (uint64_t)run.first * BLOCK_BYTES;
    size_t want = (size_t)blocks_bytes(t->original.size, run.first, run.count);
    uint32_t extent = run.first / EXTENT_BLOCKS;
    int rc = partial_borrow(d->transfers, t, extent, true);
    rc = rc ? rc : fetch(d, t, buffer, want);
    if (!rc) {
        t->step = MONARCH_STEP_WRITE;
        rc = file_write_at(t->target, buffer, want, t->offset - t->shift);
    }
    if (rc) {
        partial_unclaim(d->partials, t->partial, run, rc != -ECANCELED);
        return rc;
    }
    blocks_digest(buffer, want, digests);
    atomic_store(&t->partial->from_origin, true);
    table_count_blocks(d->table, NO_PEER, want);
    if (run.first == 0)
        begin_file(d, t, buffer);
    bool complete = partial_set(d->partials, t->partial, run, digests);
    return complete ? end_extent(d, t, extent, buffer) : 0;
}

/* ---- the Transfer ---------------------------------------------------------------- */

/* has_come - an order for Blocks that a peer has given: only their Extent is completed. */
static bool has_come(const struct transfer *t)
{
    return t->order.tried == BLOCKS_HAVE_COME;
}

static int begin(struct demand *d, struct transfer *t)
{
    t->begun = true;
    int rc = partial_enter(d->partials, &t->order, &t->partial);
    if (rc)
        return rc;
    t->next_block = t->order.first_block;
    t->end_block = t->order.first_block + t->order.block_count;
    if (has_come(t))
        t->next_block = t->end_block;
    table_busy(d->table, true);
    return transfer_prepare(d->transfers, t);
}

/* next_count - how many Blocks to read next: they end at a multiple of their number. */
static uint32_t next_count(const struct transfer *t, uint32_t first)
{
    uint32_t most = t->chunks * CHUNK_BLOCKS;
    return most - first % most;
}

/* copy_asked - the Blocks that programs have asked for, which are claimed already. */
static int copy_asked(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    int rc = 0;
    while (!rc && t->next_block < t->end_block) {
        uint32_t left = t->end_block - t->next_block;
        uint32_t most = next_count(t, t->next_block);
        struct block_run run = {t->next_block, left < most ? left : most};
        t->next_block += run.count;
        rc = copy_run(d, t, run, buffer);
        health_note_step(d->transfers, t);
    }
    return rc;
}

/* may_fetch_unasked - what peers are asked for unasked leaves room for programs. */
static bool may_fetch_unasked(struct demand *d)
{
    pthread_mutex_lock(&d->transfers->lock);
    bool may = d->fetcher.of && !d->fill.paused && d->fetcher.has_room(d->fetcher.of);
    pthread_mutex_unlock(&d->transfers->lock);
    return may;
}

/* is_full - as much is being fetched as may be: in all for fill, else of this File. */
static bool is_full(struct demand *d, const struct transfer *t)
{
    pthread_mutex_lock(&d->partials->lock);
    bool full = t->partial->claims >= FETCHED_BLOCKS_MAX;
    pthread_mutex_unlock(&d->partials->lock);
    if (full)
        return true;
    return order_class(t->order.kind) == CLASS_BACKGROUND && !may_fetch_unasked(d);
}

/* waits_for_pool - an Extent is to be packed, for which there is no room in the Pool now. */
static bool waits_for_pool(struct demand *d, const struct transfer *t, uint32_t block)
{
    pthread_mutex_lock(&d->partials->lock);
    bool waits = extent_goes_packed(d->partials, t->partial, block / EXTENT_BLOCKS);
    pthread_mutex_unlock(&d->partials->lock);
    return waits;
}

/* is_needless - fill would read for nodes that are gone, and no program runs on this one: all
 * leave when the job ends, and what is not fetched by then is of no use. */
static bool is_needless(struct demand *d, const struct monarch_order *order)
{
    return order->tried && order_class(order->kind) == CLASS_BACKGROUND &&
           fill_paused(d);
}

/* is_decoded - Blocks of a File that is gathered are in a frame. */
static bool is_decoded(struct demand *d, const struct transfer *t, struct block_run run)
{
    return t->partial->gathers &&
           extent_is_packed(d->partials, t->order.file, run.first / EXTENT_BLOCKS);
}

/* bring - has the next missing Blocks brought, by their owner, out of a frame or by this
 * Transfer itself; UNABLE: not now; ROOMLESS: no Tier has room for them. */
static int bring(struct demand *d, struct transfer *t, struct block_run next,
                 uint8_t *buffer)
{
    struct monarch_order order = t->order;
    order.first_block = next.first;
    order.tried = 0;
    bool packed = is_decoded(d, t, next);
    bool may = packed || table_block_source(d->table, &order);
    bool sent = packed || order.peer != NO_PEER;
    if (!may || (sent && is_full(d, t)) || (!sent && is_needless(d, &order)))
        return UNABLE;
    bool unasked = sent && order_class(order.kind) == CLASS_BACKGROUND;
    uint32_t most = sent ? next.count : next_count(t, next.first);
    struct block_run run = partial_claim_next(d->partials, t->partial, next.first, most,
                                              unasked);
    order.first_block = run.first;
    order.block_count = run.count;
    if (!run.count)
        return t->partial->pieces && !waits_for_pool(d, t, next.first) ? ROOMLESS
                                                                       : UNABLE;
    if (!sent)
        return copy_run(d, t, run, buffer);
    if (!blocks_send(d, &order)) {
        partial_unclaim(d->partials, t->partial, run, false);
        return UNABLE;
    }
    if (unasked)
        blocks_check_asked(d, t->partial->large, run);
    return 0;
}

/* bring_missing - all that nobody else copies; as background one piece of it. UNABLE: some
 * of it cannot be brought now. */
static int bring_missing(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    bool unable = false;
    for (;;) {
        struct block_run next = partial_find_next(d->partials, t->partial,
                                                  t->next_block);
        if (!next.count)
            return unable ? UNABLE : 0;
        int rc = bring(d, t, next, buffer);
        health_note_step(d->transfers, t);
        unable = unable || rc == UNABLE;
        if (rc == UNABLE ||
            rc == ROOMLESS) { /* another Extent may have another source */
            t->next_block = (next.first / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS;
            continue;
        }
        if (rc || order_class(t->order.kind) == CLASS_BACKGROUND)
            return rc ? rc : UNFINISHED;
    }
}

/* leave - ends a Transfer of fill that can bring nothing more now: it goes on with the File
 * later, unless all that this node keeps of it is there. */
static int leave(struct demand *d, struct transfer *t, int rc)
{
    if (!rc && t->partial->pieces)
        partial_abandon(d->partials, t->partial);
    else
        partial_postpone(d->partials, t->partial);
    return 0;
}

/* complete - brings what is missing. For programs it waits for what others copy. */
static int complete(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    int rc = partial_gather(d->transfers, t, buffer);
    rc = rc ? rc : bring_missing(d, t, buffer);
    bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
    if ((background || t->partial->pieces) && (!rc || rc == UNABLE))
        return leave(d, t, rc);
    while ((!rc || rc == UNABLE) && !job_stopping(d->job)) {
        readers_leave(d->transfers, t);
        blocks_want_rest(d, t->partial);
        health_note_wait(t, true);
        bool changed = partial_await(d->partials, t->partial);
        health_note_wait(t, false);
        if (partial_ended(d->partials, t->partial, &rc))
            return rc;
        t->next_block = 0;
        if (changed)
            rc = bring_missing(d, t, buffer);
    }
    return rc ? rc : -ECANCELED;
}

/* give_up - what a Transfer that has failed has claimed and not copied. */
static void give_up(struct demand *d, struct transfer *t)
{
    while (t->order.block_count && t->next_block < t->end_block) {
        uint32_t left = t->end_block - t->next_block;
        partial_unclaim(d->partials, t->partial,
                        (struct block_run){t->next_block, left}, true);
        t->next_block += left;
    }
}

/* spares_file - an error of the origin at some Blocks, which its other Blocks may not have:
 * programs that ask for these get the origin's own answer. */
static bool spares_file(const struct transfer *t, int rc)
{
    return t->order.block_count && t->step == MONARCH_STEP_READ && rc != -ESTALE;
}

static int end(struct demand *d, struct transfer *t, int rc)
{
    struct partial *p = t->partial;
    partial_return(t);
    if (!p) /* of Blocks: the File has ended before */
        return t->order.block_count ? 0 : rc;
    table_busy(d->table, false);
    give_up(d, t);
    if (rc && spares_file(t, rc))
        rc = 0;
    if (rc && rc != -ECANCELED && !partial_end(d->partials, p, rc))
        rc = 0; /* another Transfer has told it, or has published the File */
    partial_leave(d->partials, p, !t->order.block_count);
    return rc;
}

/* complete_come - completes the Extent whose last Block a peer has given. */
static int complete_come(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    uint32_t extent = t->order.first_block / EXTENT_BLOCKS;
    int rc = partial_borrow(d->transfers, t, extent, false);
    return rc ? rc : end_extent(d, t, extent, buffer);
}

static int run(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    int rc = t->begun ? 0 : begin(d, t);
    if (rc)
        return rc;
    if (has_come(t))
        return complete_come(d, t, buffer);
    return t->order.block_count ? copy_asked(d, t, buffer) : complete(d, t, buffer);
}

/* blocks_run - transfer_run() of a large File. */
bool blocks_run(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc = run(d, t, buffer);
    health_note_step(d->transfers, t);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED) {
        partial_return(t);
        return false;
    }
    rc = end(d, t, rc);
    transfer_end(t, rc);
    return true;
}
