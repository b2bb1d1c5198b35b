/* block_serving.c - which Blocks of a large File there are for other nodes, and where. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/extents/partial.h"
#include "dataplane/extents/staging_table.h"
#include "shared/catalog.h"

static bool same_word(uint32_t a, uint32_t b)
{
    return (a & STATE_GENERATION) == (b & STATE_GENERATION);
}

/* hold_ready - of a Replica that is READY; the digests are known where its Blocks came one by
 * one. */
static void hold_ready(const struct partials *all, uint32_t large, struct block_run run,
                       struct held *out)
{
    const struct digests *kept = &all->digests[large];
    out->checked = kept->blocks && same_word(kept->word, out->word);
    if (out->checked)
        memcpy(out->digests, kept->blocks + run.first,
               run.count * sizeof(*out->digests));
}

/* hold_part - of one that fills. */
static bool hold_part(const struct partial *p, struct block_run run, struct held *out)
{
    uint32_t mask = blocks_mask(run.first, run.count);
    if (!p || p->ended || !same_word(p->order.word, out->word) ||
        ~atomic_load(&p->words[run.first / EXTENT_BLOCKS]) & mask)
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

/* partial_hold - some Blocks of one Extent, up to HELD_MAX; false: not all of them are
 * there. On this node the File may not be large: by another configuration it is staged
 * whole. */
bool partial_hold(struct engine *e, uint32_t file, struct block_run run,
                  struct held *out)
{
    int64_t large = e->partials ? presence_find(e->flags, file) : -1;
    *out = (struct held){.offset = (uint64_t)run.first * BLOCK_BYTES};
    catalog_replica_name(e->catalog, file, out->name);
    if (large >= 0)
        pthread_mutex_lock(&e->partials->lock);
    out->word = replica_load(e->catalog, file);
    out->tier = STATE_TIER(out->word);
    bool found = STATE_OF(out->word) == REPLICA_READY;
    if (large >= 0 && found)
        hold_ready(e->partials, (uint32_t)large, run, out);
    else if (large >= 0 && STATE_OF(out->word) == REPLICA_STAGING)
        found = hold_part(e->partials->all[large], run, out);
    if (large >= 0)
        pthread_mutex_unlock(&e->partials->lock);
    return found;
}

/* partial_digests - the checksums of some Blocks of an Extent that is packed; false: they are
 * not known. */
bool partial_digests(struct engine *e, uint32_t file, struct block_run run,
                     uint64_t *out)
{
    int64_t large = e->partials ? presence_find(e->flags, file) : -1;
    if (large < 0)
        return false;
    pthread_mutex_lock(&e->partials->lock);
    const struct partial *p = e->partials->all[large];
    bool known = p && !p->ended;
    if (known)
        memcpy(out, p->digests + run.first, run.count * sizeof(*out));
    pthread_mutex_unlock(&e->partials->lock);
    return known;
}

/* partial_held_still - the Replica is the same after its bytes were read. */
bool partial_held_still(struct engine *e, uint32_t file, const struct held *held)
{
    uint32_t word = replica_load(e->catalog, file);
    if (!same_word(word, held->word))
        return false;
    if (STATE_OF(word) != REPLICA_STAGING || !held->part)
        return STATE_OF(word) == REPLICA_READY;
    const struct part *part = presence_part(e->flags,
                                            (uint32_t)presence_find(e->flags, file));
    return part_load(part) == held->part && part_pieces(part) == held->pieces;
}

/* partial_note_adopted - keeps the checksums of the Blocks of a Replica that is being
 * verified, which are right if those of its Extents are. */
void partial_note_adopted(struct engine *e, const struct monarch_order *order,
                          const uint8_t *bytes, size_t n, uint64_t offset)
{
    int64_t large = e->partials ? presence_find(e->flags, order->file) : -1;
    if (large < 0)
        return;
    pthread_mutex_lock(&e->partials->lock);
    struct digests *d = &e->partials->digests[large];
    if (!d->blocks)
        d->blocks = calloc(blocks_of(e->table->options.sizes[order->file]),
                           sizeof(*d->blocks));
    d->word = order->word;
    if (d->blocks)
        blocks_digest(bytes, n, d->blocks + offset / BLOCK_BYTES);
    pthread_mutex_unlock(&e->partials->lock);
}

/* partial_failures - changes when Blocks of a large File could not be brought. */
uint32_t partial_failures(const struct engine *e, uint32_t file)
{
    int64_t large = presence_find(e->flags, file);
    if (large < 0)
        return 0;
    const struct part *part = presence_part(e->flags, (uint32_t)large);
    return atomic_load_explicit((const _Atomic uint32_t *)&part->failures,
                                memory_order_acquire);
}
