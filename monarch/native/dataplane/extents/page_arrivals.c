/* page_arrivals.c - the state of Extents of large Files: present Pages, checksums of Blocks, and
 * whether the Extents are complete.
 *
 * Programs read a Page once its bit is set, which is after the origin's file was found to be the
 * one in the Catalog. A Block that arrives in one read gets its checksum from those bytes. A Block
 * that arrives piecemeal gets it when its last Page is present: the Block is read from the Tier,
 * and the sum of the checksums of its Pages must equal the sum kept as they arrived.
 */
#include <errno.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/table.h"
#include "shared/xxh3.h"

/* ---- sums of Pages ---------------------------------------------------------------------- */

/* sum_pages - returns the sum of the checksums of some Pages of one Block; `bytes` begin at the
 * Page `first`. */
static uint64_t sum_pages(uint32_t first, uint64_t mask, const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < n; at += PAGE_BYTES, first++)
        if (mask & pages_mask(first, 1))
            sum ^= xxh3(bytes + at, n - at < PAGE_BYTES ? n - at : PAGE_BYTES, first);
    return sum;
}

static uint64_t size_of(const struct partials *parts, const struct partial *p)
{
    return parts->table->options.sizes[p->order.file];
}

struct part_of_block { /* Pages of one Block that have arrived */
    uint32_t block, first, count;
    bool whole;
};

static struct part_of_block part_at(const struct partial *p, uint32_t at, uint32_t end)
{
    uint32_t block = at / BLOCK_PAGES, begin = block * BLOCK_PAGES;
    uint32_t n = pages_in_block(at, end);
    bool whole = at == begin && n == pages_in_block(begin, p->pages);
    return (struct part_of_block){block, at, n, whole};
}

/* sum_run - computes for each Block of a run its checksum, or the sum of those of its new Pages. */
static void sum_run(struct partials *parts, struct partial *p, struct page_run run,
                    const uint8_t *bytes, uint64_t out[EXTENT_BLOCKS])
{
    uint64_t size = size_of(parts, p);
    for (uint32_t at = run.first, end = at + run.count; at < end;) {
        struct part_of_block part = part_at(p, at, end);
        size_t n = (size_t)pages_bytes(size, at, part.count);
        if (part.whole) {
            *out++ = xxh3(bytes, n, 0);
        } else {
            pthread_mutex_lock(&parts->lock);
            uint64_t fresh = ~p->words[part.block] & pages_mask(at, part.count);
            pthread_mutex_unlock(&parts->lock);
            *out++ = sum_pages(at, fresh, bytes, n);
        }
        bytes += n;
        at += part.count;
    }
}

/* ---- bits; the callers hold the lock ----------------------------------------------------- */

/* set_pages - sets the bits of Pages of one Block and returns how many were missing. */
static uint32_t set_pages(struct partial *p, const struct part_of_block *part)
{
    struct extent *e = &p->each[part->block / EXTENT_BLOCKS];
    uint64_t mask = pages_mask(part->first, part->count);
    uint64_t before = atomic_fetch_or_explicit(&p->words[part->block], mask,
                                               memory_order_release);
    uint32_t fresh = (uint32_t)__builtin_popcountll(mask & ~before);
    e->present = (uint16_t)(e->present + fresh);
    p->present += fresh;
    return fresh;
}

static bool is_whole(const struct partial *p, uint32_t block)
{
    uint32_t first = block * BLOCK_PAGES;
    return pages_there(p->words, first, pages_in_block(first, p->pages));
}

static bool is_digested(const struct partial *p, uint32_t block)
{
    return p->each[block / EXTENT_BLOCKS].digested >> block % EXTENT_BLOCKS & 1;
}

static void set_digest(struct partial *p, uint32_t block, uint64_t digest)
{
    p->digests[block] = digest;
    p->each[block / EXTENT_BLOCKS].digested |= 1u << block % EXTENT_BLOCKS;
}

/* note_changed - handles Pages or checksums of an Extent that have arrived; true: the Extent is
 * complete, and its File will be READY. */
static bool note_changed(struct partials *parts, struct partial *p, uint32_t extent,
                         bool was_whole)
{
    bool complete = !was_whole && partial_is_whole(p, extent);
    if (complete && p->pieces)
        extent_arrived(parts, p, extent);
    partial_wake(parts, p, extent);
    return complete && !p->pieces;
}

/* set_part - marks Pages of one Block as present. If the Block needs its checksum, they stay
 * claimed, so that it is not given up meanwhile. */
static void set_part(struct partial *p, const struct part_of_block *part, uint64_t sum,
                     struct arrival *out)
{
    if (part->whole)
        set_digest(p, part->block, sum);
    else if (!is_digested(p, part->block))
        p->digests[part->block] ^= sum;
    out->bytes += (uint64_t)set_pages(p, part) * PAGE_BYTES;
    if (is_whole(p, part->block) && !is_digested(p, part->block))
        out->undigested[out->undigested_count++] = part->block;
    else
        pages_unclaim(p, (struct page_run){part->first, part->count});
}

/* partial_removals - counts removed files of an Extent, for partial_arrived(), before one is
 * opened. */
uint16_t partial_removals(struct partials *parts, struct partial *p, uint32_t extent)
{
    pthread_mutex_lock(&parts->lock);
    uint16_t removals = p->each[extent].removals;
    pthread_mutex_unlock(&parts->lock);
    return removals;
}

/* is_lost - Pages were written to a file that another Transfer has found damaged and removed: they
 * are not present, and waiting programs request them again. */
static bool is_lost(struct partials *parts, struct partial *p, struct page_run run,
                    uint16_t removals)
{
    uint32_t extent = run.first / EXTENT_PAGES;
    if (p->each[extent].removals == removals)
        return false;
    pages_unclaim(p, run);
    partial_wake(parts, p, extent);
    return true;
}

/* partial_arrived - marks Pages of one Extent, claimed by the caller, as present in the Tier,
 * unless removals happened meanwhile. The caller computes the checksums of undigested Blocks. */
struct arrival partial_arrived(struct partials *parts, struct partial *p,
                               struct page_run run, const uint8_t *bytes,
                               uint16_t removals)
{
    struct arrival out = {0};
    uint64_t sums[EXTENT_BLOCKS], *sum = sums;
    uint32_t extent = run.first / EXTENT_PAGES;
    sum_run(parts, p, run, bytes, sums);
    pthread_mutex_lock(&parts->lock);
    if (is_lost(parts, p, run, removals)) {
        pthread_mutex_unlock(&parts->lock);
        return out;
    }
    bool was_whole = partial_is_whole(p, extent);
    bool had_last = pages_there(p->words, p->pages - 1, 1);
    for (uint32_t at = run.first, end = at + run.count; at < end;) {
        struct part_of_block part = part_at(p, at, end);
        set_part(p, &part, *sum++, &out);
        at += part.count;
    }
    if (!had_last && pages_there(p->words, p->pages - 1, 1)) /* may be short */
        out.bytes -= -size_of(parts, p) % PAGE_BYTES;
    out.complete = note_changed(parts, p, extent, was_whole);
    pthread_mutex_unlock(&parts->lock);
    return out;
}

/* partial_arrived_again - does the same for Pages whose Blocks have checksums; true: the Extent is
 * complete, and its File will be READY. */
bool partial_arrived_again(struct partials *parts, struct partial *p,
                           struct page_run run, uint16_t removals)
{
    uint32_t extent = run.first / EXTENT_PAGES;
    pthread_mutex_lock(&parts->lock);
    if (is_lost(parts, p, run, removals)) {
        pthread_mutex_unlock(&parts->lock);
        return false;
    }
    bool was_whole = partial_is_whole(p, extent);
    for (uint32_t at = run.first, end = at + run.count; at < end;) {
        struct part_of_block part = part_at(p, at, end);
        set_pages(p, &part);
        at += part.count;
    }
    pages_unclaim(p, run);
    bool complete = note_changed(parts, p, extent, was_whole);
    pthread_mutex_unlock(&parts->lock);
    return complete;
}

/* partial_digested - takes the bytes of a Block that arrived piecemeal, as read from the Tier.
 * Returns 1 if that completes an Extent of a File that will be READY, 0 if not, or -EBADMSG if
 * the bytes differ from those that arrived. */
int partial_digested(struct partials *parts, struct partial *p, uint32_t block,
                     const uint8_t *bytes, size_t n)
{
    uint32_t extent = block / EXTENT_BLOCKS, first = block * BLOCK_PAGES;
    uint64_t sum = sum_pages(first, ~0ull, bytes, n), digest = xxh3(bytes, n, 0);
    const struct page_run pages = {first, pages_in_block(first, p->pages)};
    pthread_mutex_lock(&parts->lock);
    bool was_whole = partial_is_whole(p, extent);
    bool right = sum == p->digests[block];
    if (right)
        set_digest(p, block, digest);
    pages_unclaim(p, pages);
    bool complete = note_changed(parts, p, extent, was_whole);
    pthread_mutex_unlock(&parts->lock);
    return right ? complete : -EBADMSG;
}

/* ---- complete Extents -------------------------------------------------------------------- */

/* partial_extent_finished - counts an Extent that has its checksum; true: it was the last
 * one, and the caller publishes the Replica. */
bool partial_extent_finished(struct partials *parts, struct partial *p, uint32_t extent)
{
    pthread_mutex_lock(&parts->lock);
    bool first = !p->each[extent].has_checksum;
    p->each[extent].has_checksum = true;
    p->finished += first;
    bool last = first && p->finished == p->extents && !p->ended;
    pthread_mutex_unlock(&parts->lock);
    return last;
}

/* partial_hand - passes Pages that are still claimed, or have arrived, to the listening thread: it
 * asks their next source, or completes their Extent. False: its queue is full. */
bool partial_hand(struct partials *parts, const struct monarch_order *order)
{
    pthread_mutex_lock(&parts->lock);
    bool taken = ring_push(&parts->handed, order);
    pthread_mutex_unlock(&parts->lock);
    if (taken)
        job_ring(parts->job);
    return taken;
}

/* partial_hand_complete - has a copy thread complete an Extent whose last Page has arrived by an
 * order. Orders of fill become demand, too: while a program waits for the File, no background order
 * would begin. */
void partial_hand_complete(struct partials *parts, const struct monarch_order *from,
                           uint32_t extent)
{
    struct monarch_order order = *from;
    order.peer = NO_PEER;
    order.kind = (uint8_t)((from->kind & MONARCH_PARTLY) | MONARCH_ASKED);
    order.tried = PAGES_PRESENT;
    order.first_page = extent * EXTENT_PAGES;
    order.page_count = 1;
    if (!partial_hand(parts, &order))
        partial_finish_later(parts, order.file);
}

/* partial_take_handed - takes the next order of partial_hand(); false: none. */
bool partial_take_handed(struct partials *parts, struct monarch_order *out)
{
    pthread_mutex_lock(&parts->lock);
    bool found = ring_pop(&parts->handed, out);
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* partial_finish_later - notes that a complete Extent could not be queued for its checksum. */
void partial_finish_later(struct partials *parts, uint32_t file)
{
    int64_t large = presence_find(parts->job->flags, file);
    pthread_mutex_lock(&parts->lock);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p)
        p->finish_later = true;
    pthread_mutex_unlock(&parts->lock);
}

/* partial_unfinished - finds a complete Extent without checksum; false: none. Under the lock. */
bool partial_unfinished(struct partial *p, uint32_t *extent)
{
    for (uint32_t i = 0; i < p->extents; i++)
        if (!p->each[i].has_checksum && partial_is_whole(p, i)) {
            *extent = i;
            return true;
        }
    p->finish_later = false;
    return false;
}
