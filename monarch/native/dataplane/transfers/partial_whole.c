/* partial_whole.c - assembles a large File that a packed Tier was to hold in pieces: programs that
 * map it or read it by a stream need it whole.
 *
 * Space for all of the File is reserved at once. Its Extents in the Pool move into its sparse file;
 * frames are decoded into that, and dropped when the Replica is READY; the rest is copied like that
 * of any other File.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/progress.h"

enum { CHUNK_BLOCKS = CHUNK_BYTES / BLOCK_BYTES };

struct moving { /* an Extent, out of the Pool */
    int from;
    uint32_t extent, bits; /* of the Blocks that are whole there */
};

/* whole_blocks - returns the Blocks of an Extent that are present and have their checksums; the
 * others are fetched again. */
static uint32_t whole_blocks(const struct partial *p, uint32_t extent)
{
    struct page_run all = partial_extent_pages(p, extent);
    uint32_t bits = 0;
    for (uint32_t n, at = all.first, end = at + all.count; at < end; at += n) {
        uint32_t block = at / BLOCK_PAGES;
        n = pages_in_block(at, end);
        bits |= pages_there(p->words, at, n) ? blocks_mask(block, 1) : 0;
    }
    return bits & p->each[extent].digested;
}

/* move_run - moves Blocks; damaged ones are fetched again. */
static int move_run(struct transfers *ts, struct transfer *t, int from,
                    struct block_run run, uint8_t *buffer)
{
    struct partial *p = t->partial;
    const struct page_run pages = blocks_pages(p, run);
    size_t n = (size_t)blocks_bytes(t->original.size, run.first, run.count);
    uint64_t at = (uint64_t)run.first * BLOCK_BYTES;
    if (file_read_at(from, buffer, n, at % EXTENT_BYTES) != (ssize_t)n ||
        !blocks_same(p, run.first, buffer, n))
        return 0;
    progress_store(ts->job->requests, t->order.file,
                   progress_at(run.first + run.count));
    t->step = MONARCH_STEP_WRITE;
    int rc = file_write_at(t->file.fd, buffer, n, at);
    if (!rc && partial_arrived_again(ts->partials, p, pages, t->file.removals))
        partial_hand_complete(ts->partials, &t->order, run.first / EXTENT_BLOCKS);
    return rc;
}

/* copy_out - moves Blocks of an Extent out of its file in the Pool. */
static int copy_out(struct transfers *ts, struct transfer *t, struct moving m,
                    uint8_t *buffer)
{
    struct block_run all = pages_blocks(partial_extent_pages(t->partial, m.extent));
    int rc = partial_borrow(ts, t, m.extent, false);
    while (!rc && m.bits && m.from >= 0) {
        rc = move_run(ts, t, m.from, blocks_next_run(all, &m.bits, CHUNK_BLOCKS),
                      buffer);
        health_note_step(ts, t);
    }
    partial_return(t);
    return rc;
}

/* move - moves an Extent, all of whose Pages are claimed, out of the Pool. */
static int move(struct transfers *ts, struct transfer *t, uint32_t extent,
                uint8_t *buffer)
{
    struct partial *p = t->partial;
    struct moving m = {.extent = extent};
    char name[EXTENT_NAME_BYTES + 1];
    memcpy(name, p->name, REPLICA_NAME_BYTES);
    presence_extent_name(extent, name);
    pthread_mutex_lock(&ts->partials->lock);
    m.bits = whole_blocks(p, extent);
    uint32_t pool = partial_hide_extent(p, extent);
    partial_set_place(p, extent, (uint8_t)p->order.tier);
    pthread_mutex_unlock(&ts->partials->lock);
    m.from = file_openat(ts->job->tiers[pool], name, O_RDONLY, 0);
    int rc = copy_out(ts, t, m, buffer);
    if (m.from >= 0)
        close(m.from);
    partial_remove_extent(ts->partials, p, extent, pool);
    partial_unclaim(ts->partials, p, partial_extent_pages(p, extent), false);
    return rc;
}

/* partial_assemble_whole - moves the pieces of a File from the Pool into its whole Replica. */
int partial_assemble_whole(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct partial *p = t->partial;
    int rc = 0;
    if (!p->gathers || !part_pieces(p->part))
        return 0;
    for (uint32_t i = 0; !rc && i < p->extents; i++) {
        if (partial_place(p, i) & PLACE_FILE)
            rc = job_stopping(ts->job) ? -ECANCELED : move(ts, t, i, buffer);
    }
    if (!rc)
        atomic_store((_Atomic uint32_t *)&p->part->pieces, 0);
    return rc;
}
