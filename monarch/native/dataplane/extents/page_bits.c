/* page_bits.c - the bits of the Pages of a partial Replica: which are free, claimed or present.
 *
 * A Page is free if it is neither present nor claimed. All callers hold the lock of the partial
 * Replicas.
 */
#include "dataplane/extents/partial.h"

static uint64_t present_in(const struct partial *p, uint32_t block)
{
    return atomic_load_explicit(&p->words[block], memory_order_relaxed);
}

/* next_with - returns the first taken, or first free, Page from `at` on; `end` if none. */
static uint32_t next_with(const struct partial *p, bool taken, uint32_t at,
                          uint32_t end)
{
    while (at < end) {
        uint64_t found = present_in(p, at / BLOCK_PAGES) | p->claimed[at / BLOCK_PAGES];
        found = (taken ? found : ~found) >> at % BLOCK_PAGES;
        if (found) {
            at += (uint32_t)__builtin_ctzll(found);
            return at < end ? at : end;
        }
        at += BLOCK_PAGES - at % BLOCK_PAGES;
    }
    return end;
}

/* pages_next_free - returns the first free Page from `at` on, or `end`. */
uint32_t pages_next_free(const struct partial *p, uint32_t at, uint32_t end)
{
    return next_with(p, false, at, end);
}

static uint32_t next_taken(const struct partial *p, uint32_t at, uint32_t end)
{
    return next_with(p, true, at, end);
}

/* count_bits - counts the Pages of a run whose bits are set in these words. */
static uint32_t count_bits(const uint64_t *words, struct page_run run)
{
    uint32_t sum = 0;
    for (uint32_t n, at = run.first, end = at + run.count; at < end; at += n) {
        n = pages_in_block(at, end);
        sum += (uint32_t)__builtin_popcountll(words[at / BLOCK_PAGES] &
                                              pages_mask(at, n));
    }
    return sum;
}

/* pages_count_free - counts the free Pages of a run. */
uint32_t pages_count_free(const struct partial *p, struct page_run run)
{
    uint32_t sum = 0, next, end = run.first + run.count;
    for (uint32_t at = pages_next_free(p, run.first, end); at < end;
         at = pages_next_free(p, next, end)) {
        next = next_taken(p, at, end);
        sum += next - at;
    }
    return sum;
}

/* read_through - extends a run over present Pages if reading these again costs less than another
 * request; at most one Page per READ_BESIDE_PARTS missing ones. */
static void read_through(const struct partial *p, uint32_t end, uint32_t through,
                         struct page_run *run)
{
    uint32_t missing = run->count, again = 0;
    for (;;) {
        uint32_t at = run->first + run->count, next = pages_next_free(p, at, end);
        const struct page_run gap = {at, next - at};
        if (next == end || gap.count > through || count_bits(p->claimed, gap))
            return;
        uint32_t until = next_taken(p, next, end);
        missing += until - next;
        again += gap.count;
        if (again * READ_BESIDE_PARTS > missing)
            return;
        run->count = until - run->first;
    }
}

/* lacks_all - no Page of a Block is being copied, and some are missing. */
static bool lacks_all(const struct partial *p, uint32_t block)
{
    uint32_t first = block * BLOCK_PAGES;
    uint64_t all = pages_mask(first, pages_in_block(first, p->pages));
    return !p->claimed[block] && ~present_in(p, block) & all;
}

/* whole_blocks - returns the first run of such Blocks, from that of Page `at` on. */
static struct page_run whole_blocks(const struct partial *p, uint32_t at, uint32_t end)
{
    uint32_t block = at / BLOCK_PAGES, last = (end - 1) / BLOCK_PAGES + 1;
    while (block < last && !lacks_all(p, block))
        block++;
    uint32_t first = block;
    while (block < last && lacks_all(p, block))
        block++;
    uint32_t until = block * BLOCK_PAGES;
    until = until < p->pages ? until : p->pages;
    return (struct page_run){first * BLOCK_PAGES,
                             block > first ? until - first * BLOCK_PAGES : 0};
}

/* pages_free_run - returns the first free Pages of a range, within one Extent; count 0: none. */
struct page_run pages_free_run(const struct partial *p, struct page_run within,
                               const struct claiming *how)
{
    uint32_t end = within.first + within.count;
    end = end < p->pages ? end : p->pages;
    uint32_t first = pages_next_free(p, within.first, end);
    uint32_t last = first - first % EXTENT_PAGES + EXTENT_PAGES;
    last = last < end ? last : end;
    if (first == end)
        return (struct page_run){first, 0};
    if (how->blocks)
        return whole_blocks(p, first, last);
    struct page_run run = {first, next_taken(p, first, last) - first};
    read_through(p, last, how->through, &run);
    return run;
}

/* pages_claim - claims the Pages of a run that are neither present nor claimed. */
void pages_claim(struct partial *p, struct page_run run)
{
    struct extent *e = &p->each[run.first / EXTENT_PAGES];
    for (uint32_t n, at = run.first, end = at + run.count; at < end; at += n) {
        uint32_t block = at / BLOCK_PAGES;
        n = pages_in_block(at, end);
        uint64_t free = pages_mask(at, n) & ~(present_in(p, block) | p->claimed[block]);
        uint32_t count = (uint32_t)__builtin_popcountll(free);
        p->claimed[block] |= free;
        e->claimed = (uint16_t)(e->claimed + count);
        p->claims += count;
    }
}

/* pages_claim_all - claims all Pages, also the present ones, of an Extent that is not being copied:
 * it is moved. */
void pages_claim_all(struct partial *p, uint32_t extent)
{
    struct page_run all = partial_extent_pages(p, extent);
    for (uint32_t n, at = all.first, end = at + all.count; at < end; at += n) {
        n = pages_in_block(at, end);
        p->claimed[at / BLOCK_PAGES] = pages_mask(at, n);
    }
    p->each[extent].claimed = (uint16_t)all.count;
    p->claims += all.count;
}

/* pages_unclaim - ends the claims of the Pages of a run. */
void pages_unclaim(struct partial *p, struct page_run run)
{
    struct extent *e = &p->each[run.first / EXTENT_PAGES];
    for (uint32_t n, at = run.first, end = at + run.count; at < end; at += n) {
        uint32_t block = at / BLOCK_PAGES;
        n = pages_in_block(at, end);
        uint64_t held = pages_mask(at, n) & p->claimed[block];
        uint32_t count = (uint32_t)__builtin_popcountll(held);
        p->claimed[block] &= ~held;
        p->unasked[block] &= ~held;
        e->claimed = (uint16_t)(e->claimed - count);
        p->claims -= count;
    }
}

/* pages_set_unasked - notes that no program waits for claimed Pages so far. */
void pages_set_unasked(struct partial *p, struct page_run run)
{
    for (uint32_t n, at = run.first, end = at + run.count; at < end; at += n) {
        n = pages_in_block(at, end);
        p->unasked[at / BLOCK_PAGES] |= pages_mask(at, n) &
                                        p->claimed[at / BLOCK_PAGES];
    }
}

/* pages_take_unasked - notes that a program now waits for all Pages of a range; true: fill had
 * claimed some of them. */
bool pages_take_unasked(struct partial *p, struct page_run range)
{
    bool found = false;
    for (uint32_t n, at = range.first, end = at + range.count; at < end; at += n) {
        n = pages_in_block(at, end);
        uint64_t mask = p->unasked[at / BLOCK_PAGES] & pages_mask(at, n);
        found = found || mask;
        p->unasked[at / BLOCK_PAGES] &= ~mask;
    }
    return found;
}

static uint32_t all_blocks(const struct partial *p, uint32_t extent)
{
    uint32_t count = pages_blocks(partial_extent_pages(p, extent)).count;
    return count == EXTENT_BLOCKS ? ~0u : (1u << count) - 1;
}

/* partial_is_whole - all Pages of an Extent are present, and the checksums of its Blocks known. */
bool partial_is_whole(const struct partial *p, uint32_t extent)
{
    const struct extent *e = &p->each[extent];
    return e->present == partial_extent_pages(p, extent).count &&
           e->digested == all_blocks(p, extent);
}
