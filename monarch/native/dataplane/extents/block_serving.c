/* block_serving.c - finds the Blocks of a large File that this node has for other nodes; computes
 * and compares checksums of Blocks. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"
#include "shared/xxh3.h"

static bool same_word(uint32_t a, uint32_t b)
{
    return (a & STATE_GENERATION) == (b & STATE_GENERATION);
}

/* hold_ready - fills in Blocks of a READY Replica; the digests are known if its Blocks arrived one
 * by one. */
static void hold_ready(const struct partials *all, uint32_t large, struct block_run run,
                       struct held *out)
{
    const struct digests *kept = &all->digests[large];
    out->checked = kept->blocks && same_word(kept->word, out->word);
    if (out->checked)
        memcpy(out->digests, kept->blocks + run.first,
               run.count * sizeof(*out->digests));
}

/* is_digested - the checksums of all Blocks of a run are known. */
static bool is_digested(const struct partial *p, struct block_run run)
{
    uint32_t digested = p->each[run.first / EXTENT_BLOCKS].digested;
    return !(~digested & blocks_mask(run.first, run.count));
}

/* blocks_are_there - all Pages of the Blocks are present and their checksums known: a Block that is
 * present in part is not served. */
static bool blocks_are_there(const struct partial *p, struct block_run run)
{
    const struct page_run pages = blocks_pages(p, run);
    return is_digested(p, run) && pages_there(p->words, pages.first, pages.count);
}

/* hold_part - fills in Blocks of a partial Replica; false: not all are present. */
static bool hold_part(const struct partial *p, struct block_run run, struct held *out)
{
    if (!p || p->ended || !same_word(p->order.word, out->word) ||
        !blocks_are_there(p, run))
        return false;
    uint8_t place = atomic_load_explicit(&p->places[run.first / EXTENT_BLOCKS],
                                         memory_order_relaxed);
    out->part = part_load(p->part);
    out->pieces = part_pieces(p->part);
    out->tier = place & ~(uint32_t)PLACE_FILE;
    if (place & PLACE_FILE) {
        presence_extent_name(run.first / EXTENT_BLOCKS, out->name);
        out->offset %= EXTENT_BYTES;
    }
    out->checked = true;
    memcpy(out->digests, p->digests + run.first, run.count * sizeof(*out->digests));
    return true;
}

/* partial_hold - finds some Blocks of one Extent, up to HELD_MAX; false: not all of them are
 * present. On this node the File may not be large: with another configuration it is staged
 * whole. */
bool partial_hold(struct partials *parts, uint32_t file, struct block_run run,
                  struct held *out)
{
    int64_t large = parts->count ? presence_find(parts->job->flags, file) : -1;
    *out = (struct held){.offset = (uint64_t)run.first * BLOCK_BYTES};
    catalog_replica_name(parts->job->catalog, file, out->name);
    if (large >= 0)
        pthread_mutex_lock(&parts->lock);
    out->word = replica_load(parts->job->catalog, file);
    out->tier = STATE_TIER(out->word);
    bool found = STATE_OF(out->word) == REPLICA_READY;
    if (large >= 0 && found)
        hold_ready(parts, (uint32_t)large, run, out);
    else if (large >= 0 && STATE_OF(out->word) == REPLICA_STAGING)
        found = hold_part(parts->all[large], run, out);
    if (large >= 0)
        pthread_mutex_unlock(&parts->lock);
    return found;
}

/* partial_digests - copies the checksums of some Blocks of a packed Extent; false: they are not
 * known. */
bool partial_digests(struct partials *parts, uint32_t file, struct block_run run,
                     uint64_t *out)
{
    int64_t large = parts->count ? presence_find(parts->job->flags, file) : -1;
    if (large < 0)
        return false;
    pthread_mutex_lock(&parts->lock);
    const struct partial *p = parts->all[large];
    bool known = p && !p->ended && is_digested(p, run);
    if (known)
        memcpy(out, p->digests + run.first, run.count * sizeof(*out));
    pthread_mutex_unlock(&parts->lock);
    return known;
}

/* partial_is_held - the Replica did not change while its bytes were read. */
bool partial_is_held(struct job *job, uint32_t file, const struct held *held)
{
    uint32_t word = replica_load(job->catalog, file);
    if (!same_word(word, held->word))
        return false;
    if (STATE_OF(word) != REPLICA_STAGING || !held->part)
        return STATE_OF(word) == REPLICA_READY;
    const struct part *part = presence_part(job->flags,
                                            (uint32_t)presence_find(job->flags, file));
    return part_load(part) == held->part && part_pieces(part) == held->pieces;
}

/* partial_note_adopted - keeps the checksums of the Blocks of a Replica under verification; they
 * are correct if those of its Extents are. */
void partial_note_adopted(struct partials *parts, const struct monarch_order *order,
                          const uint8_t *bytes, size_t n, uint64_t offset)
{
    int64_t large = parts->count ? presence_find(parts->job->flags, order->file) : -1;
    if (large < 0)
        return;
    pthread_mutex_lock(&parts->lock);
    struct digests *d = &parts->digests[large];
    if (!d->blocks)
        d->blocks = calloc(blocks_of(parts->table->options.sizes[order->file]),
                           sizeof(*d->blocks));
    d->word = order->word;
    if (d->blocks)
        blocks_digest(bytes, n, d->blocks + offset / BLOCK_BYTES);
    pthread_mutex_unlock(&parts->lock);
}

/* partial_failures - returns a count that changes when staging Blocks of a large File fails. */
uint32_t partial_failures(const struct job *job, uint32_t file)
{
    int64_t large = presence_find(job->flags, file);
    if (large < 0)
        return 0;
    const struct part *part = presence_part(job->flags, (uint32_t)large);
    return atomic_load_explicit((const _Atomic uint32_t *)&part->failures,
                                memory_order_acquire);
}

/* ---- checksums of Blocks ------------------------------------------------------------ */

/* blocks_digest - computes the checksum of each Block. */
void blocks_digest(const uint8_t *bytes, size_t n, uint64_t *out)
{
    for (size_t at = 0; at < n; at += BLOCK_BYTES)
        *out++ = xxh3(bytes + at, n - at < BLOCK_BYTES ? n - at : BLOCK_BYTES, 0);
}

/* blocks_same - bytes from Block `first` on, CHUNK_BYTES at most, equal those that arrived. */
bool blocks_same(const struct partial *p, uint32_t first, const uint8_t *bytes,
                 size_t n)
{
    uint64_t digests[CHUNK_BYTES / BLOCK_BYTES];
    size_t count = (n + BLOCK_BYTES - 1) / BLOCK_BYTES;
    blocks_digest(bytes, n, digests);
    return memcmp(digests, p->digests + first, count * sizeof(*digests)) == 0;
}

/* blocks_next_run - removes the next run, of at most `most` Blocks, from the bits of a range. */
struct block_run blocks_next_run(struct block_run all, uint32_t *bits, uint32_t most)
{
    struct block_run run = {all.first, 0};
    while (!(*bits & blocks_mask(run.first, 1)))
        run.first++;
    while (run.count < most && run.first + run.count < all.first + all.count &&
           *bits & blocks_mask(run.first + run.count, 1))
        run.count++;
    *bits &= ~blocks_mask(run.first, run.count);
    return run;
}
