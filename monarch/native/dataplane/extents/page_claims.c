/* page_claims.c - which Transfer copies which Pages of a partial Replica.
 *
 * One Transfer at a time copies a Page, which it claims here; all others wait for the bit of the
 * Page. The requested Pages and few others are read from the origin: a request is widened, to save
 * later ones, only while the Pages read beside requests are at most a quarter of the Pages
 * requested of the Extent. Once four fifths of an Extent were requested, the rest of it is read,
 * too. Peers send whole Blocks.
 */
#include <string.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/table.h"

enum {
    AWAIT_MS = 100,
    RENTED = 4, /* an Extent is read whole once RENTED / BOUGHT */
    BOUGHT = 5, /* of its Pages were requested */
};

/* claim - claims a run if its Extent has room; the Pool has none for fill. */
static bool claim(struct partials *parts, struct partial *p, struct page_run run,
                  bool fill)
{
    if (p->pieces && !partial_has_place(parts, p, run.first / EXTENT_PAGES, fill))
        return false;
    pages_claim(p, run);
    return true;
}

/* refuse - refuses Pages without room: waiting programs request them again when others have
 * arrived, or read the origin if they will never have room. */
static void refuse(struct partials *parts, struct partial *p, uint32_t extent)
{
    const struct pooled_extent one = {p->large, extent};
    bool never = partial_place(p, extent) == PLACE_ORIGIN;
    if (never || !ring_push(&parts->refused, &one))
        partial_wake(parts, p, extent);
}

/* partial_take_unasked - notes that a program now waits for the whole File; finds the next Extent
 * from `extent` on of which fill had claimed Pages; false: none. */
bool partial_take_unasked(struct partials *parts, struct partial *p, uint32_t *extent)
{
    bool found = false;
    pthread_mutex_lock(&parts->lock);
    for (; !found && *extent < p->extents; *extent += !found)
        found = pages_take_unasked(p, partial_extent_pages(p, *extent));
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* ---- requests -------------------------------------------------------------------------- */

/* claim_all - claims all free Pages of a part of one Extent. */
static void claim_all(struct partials *parts, struct partial *p, struct page_run part,
                      const struct claiming *how, struct page_claims *out)
{
    uint32_t end = part.first + part.count;
    while (out->count < RUNS_MAX && part.first < end) {
        struct page_run run = pages_free_run(p, part, how);
        if (!run.count)
            break;
        part.first = run.first + run.count;
        part.count = part.first < end ? end - part.first : 0;
        if (!claim(parts, p, run, false)) {
            refuse(parts, p, run.first / EXTENT_PAGES);
            continue;
        }
        if (how->unasked)
            pages_set_unasked(p, run);
        out->runs[out->count++] = run;
    }
}

/* fills_pool - an Extent is to be read whole: it will be packed and the Pool is short of room. So
 * it is complete sooner, and its Pages need not leave the Pool before. */
static bool fills_pool(struct partials *parts, const struct partial *p, uint32_t extent)
{
    return p->pieces && table_pool_is_short(parts->table) &&
           extent_goes_packed(parts, p, extent);
}

/* comes_from_peer - the Pages of an Extent are to be requested from a peer. */
static bool comes_from_peer(struct partials *parts, const struct partial *p,
                            uint32_t extent, const struct claiming *how)
{
    struct monarch_order order = p->order;
    order.kind = how->unasked ? MONARCH_BACKGROUND : MONARCH_ASKED;
    order.first_page = extent * EXTENT_PAGES;
    order.tried = 0;
    table_page_source(parts->table, &order);
    return order.peer != NO_PEER;
}

/* widen - returns the Pages to read from the origin for a request. */
static struct page_run widen(const struct partial *p, struct page_run part,
                             uint32_t widest)
{
    const struct extent *e = &p->each[part.first / EXTENT_PAGES];
    uint32_t missing = pages_count_free(p, part), asked = e->asked + missing;
    uint32_t first = part.first - part.first % widest;
    uint32_t end = (part.first + part.count + widest - 1) / widest * widest;
    struct page_run wide = {first, (end < p->pages ? end : p->pages) - first};
    uint32_t extra = e->extra + pages_count_free(p, wide) - missing;
    return missing && extra * READ_BESIDE_PARTS <= asked ? wide : part;
}

/* claim_exact - claims the Pages of a request for the origin, and some beside them. */
static void claim_exact(struct partials *parts, struct partial *p, struct page_run part,
                        const struct claiming *how, struct page_claims *out)
{
    struct extent *e = &p->each[part.first / EXTENT_PAGES];
    uint32_t missing = pages_count_free(p, part), before = p->claims;
    claim_all(parts, p, widen(p, part, how->widest), how, out);
    uint32_t claimed = p->claims - before;
    uint32_t asked = e->asked + (claimed < missing ? claimed : missing);
    e->asked = (uint16_t)(asked < EXTENT_PAGES ? asked : EXTENT_PAGES);
    e->extra = (uint16_t)(e->extra + (claimed > missing ? claimed - missing : 0));
}

static void claim_part(struct partials *parts, struct partial *p, struct page_run part,
                       const struct claiming *how, struct page_claims *out)
{
    uint32_t extent = part.first / EXTENT_PAGES;
    struct claiming way = *how;
    bool packed = extent_is_packed(parts, p->order.file, extent);
    way.blocks = !packed && comes_from_peer(parts, p, extent, how);
    if (fills_pool(parts, p, extent))
        claim_all(parts, p, partial_extent_pages(p, extent), &way, out);
    else if (packed || way.blocks || way.unasked)
        claim_all(parts, p, part, &way, out);
    else
        claim_exact(parts, p, part, &way, out);
}

/* claim_rest - claims the rest of an Extent if enough of it was requested. */
static void claim_rest(struct partials *parts, struct partial *p, uint32_t extent,
                       struct page_claims *out)
{
    const struct claiming rest = {.unasked = true};
    struct page_run all = partial_extent_pages(p, extent);
    if (p->each[extent].asked * (uint32_t)BOUGHT >= all.count * (uint32_t)RENTED)
        claim_all(parts, p, all, &rest, out);
}

static void claim_range(struct partials *parts, struct partial *p, struct page_run all,
                        const struct claiming *how, struct page_claims *out)
{
    uint32_t end = all.first + all.count, last = (end - 1) / EXTENT_PAGES;
    out->of_fill = !how->unasked && pages_take_unasked(p, all);
    for (uint32_t n, at = all.first; at < end; at += n) {
        uint32_t left = EXTENT_PAGES - at % EXTENT_PAGES;
        n = end - at < left ? end - at : left;
        claim_part(parts, p, (struct page_run){at, n}, how, out);
    }
    out->asked = how->unasked ? 0 : out->count;
    for (uint32_t i = all.first / EXTENT_PAGES; !how->unasked && i <= last; i++)
        claim_rest(parts, p, i, out);
}

/* partial_claim_range - claims all free Pages of a range, of a File that is staged in part. */
void partial_claim_range(struct partials *parts, struct page_range range,
                         const struct claiming *how, struct page_claims *out)
{
    out->count = out->asked = 0;
    out->of_fill = false;
    pthread_mutex_lock(&parts->lock);
    struct partial *p = parts->all[range.large];
    if (p && !p->ended && range.first < p->pages && range.count) {
        uint32_t left = p->pages - range.first;
        out->order = p->order;
        claim_range(
            parts, p,
            (struct page_run){range.first, range.count < left ? range.count : left},
            how, out);
    }
    pthread_mutex_unlock(&parts->lock);
}

/* ---- fill ------------------------------------------------------------------------------ */

/* partial_claim_next - claims the first free Pages of a range for fill; count 0: none is left, or
 * (`roomless`) they have no room. */
struct page_run partial_claim_next(struct partials *parts, struct partial *p,
                                   struct page_run within, const struct claiming *how,
                                   bool *roomless)
{
    struct page_run run = {0};
    pthread_mutex_lock(&parts->lock);
    if (!p->ended)
        run = pages_free_run(p, within, how);
    *roomless = run.count && !claim(parts, p, run, true);
    run.count = *roomless ? 0 : run.count;
    if (run.count && how->unasked)
        pages_set_unasked(p, run);
    pthread_mutex_unlock(&parts->lock);
    return run;
}

/* partial_asked_since - a program has begun to wait for Pages that fill has claimed. */
bool partial_asked_since(struct partials *parts, uint32_t large, struct page_run run)
{
    bool asked = false;
    pthread_mutex_lock(&parts->lock);
    const struct partial *p = parts->all[large];
    for (uint32_t n, at = run.first, end = at + run.count; p && at < end; at += n) {
        uint32_t block = at / BLOCK_PAGES;
        n = pages_in_block(at, end);
        asked = asked || p->claimed[block] & ~p->unasked[block] & pages_mask(at, n);
    }
    pthread_mutex_unlock(&parts->lock);
    return asked;
}

/* is_wanted - fill is to stage an Extent: if its File is in pieces, only one that this node keeps
 * and has room for. */
static bool is_wanted(struct partials *parts, const struct partial *p, uint32_t extent)
{
    return !p->pieces || (table_keeps_extent(parts->table, p->order.file, extent) &&
                          !extent_is_packed(parts, p->order.file, extent) &&
                          partial_place(p, extent) != PLACE_ORIGIN);
}

/* partial_find_next - returns the next free Page that fill is to stage, or the number of all
 * Pages. */
uint32_t partial_find_next(struct partials *parts, struct partial *p, uint32_t from)
{
    pthread_mutex_lock(&parts->lock);
    uint32_t at = p->ended ? p->pages : pages_next_free(p, from, p->pages);
    while (at < p->pages && !is_wanted(parts, p, at / EXTENT_PAGES))
        at = pages_next_free(p, at - at % EXTENT_PAGES + EXTENT_PAGES, p->pages);
    pthread_mutex_unlock(&parts->lock);
    return at < p->pages ? at : p->pages;
}

/* ---- ends ------------------------------------------------------------------------------ */

/* partial_still_claimed - lists the Blocks of a claimed run that have not arrived, as up to
 * EXTENT_BLOCKS runs of Pages; returns the number of runs. */
uint32_t partial_still_claimed(struct partials *parts, struct partial *p,
                               struct page_run run, struct page_run *out)
{
    uint32_t count = 0, end = run.first + run.count;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t n, at = run.first; at < end; at += n) {
        n = pages_in_block(at, end);
        if (!(p->claimed[at / BLOCK_PAGES] & pages_mask(at, n)))
            continue;
        if (count && out[count - 1].first + out[count - 1].count == at)
            out[count - 1].count += n;
        else
            out[count++] = (struct page_run){at, n};
    }
    pthread_mutex_unlock(&parts->lock);
    return count;
}

/* partial_unclaim - ends the claims of Pages of one Extent that were not copied; if copying has
 * failed, waiting programs read the origin. */
void partial_unclaim(struct partials *parts, struct partial *p, struct page_run run,
                     bool failed)
{
    pthread_mutex_lock(&parts->lock);
    pages_unclaim(p, run);
    if (failed)
        atomic_fetch_add_explicit((_Atomic uint32_t *)&p->part->failures, 1,
                                  memory_order_release);
    partial_wake(parts, p, run.first / EXTENT_PAGES);
    pthread_mutex_unlock(&parts->lock);
}

/* is_untouched - the File has its room in one Tier; no Page is present, and none is claimed but
 * those of one order. */
static bool is_untouched(const struct partial *p, struct page_run own)
{
    return !p->ended && !p->condemned && !p->pieces && !p->gathers && !p->present &&
           p->claims == own.count;
}

/* partial_is_untouched - the same for a caller without the lock. */
bool partial_is_untouched(struct partials *parts, struct partial *p,
                          struct page_run own)
{
    pthread_mutex_lock(&parts->lock);
    bool untouched = is_untouched(p, own);
    pthread_mutex_unlock(&parts->lock);
    return untouched;
}

/* partial_claim_whole - claims all Pages of a File that is untouched but for an order's own claims;
 * false: it is not. */
bool partial_claim_whole(struct partials *parts, struct partial *p, struct page_run own)
{
    pthread_mutex_lock(&parts->lock);
    bool may = is_untouched(p, own);
    for (uint32_t i = 0; may && i < p->extents; i++)
        pages_claim(p, partial_extent_pages(p, i));
    pthread_mutex_unlock(&parts->lock);
    return may;
}

/* unclaim_between - ends the claims of the Pages of one Extent from one to before another. */
static void unclaim_between(struct partials *parts, struct partial *p, uint32_t first,
                            uint32_t end)
{
    if (first < end)
        partial_unclaim(parts, p, (struct page_run){first, end - first}, false);
}

/* partial_unclaim_whole - ends these claims; the order keeps its own, which are of one Extent. */
void partial_unclaim_whole(struct partials *parts, struct partial *p,
                           struct page_run own)
{
    for (uint32_t i = 0; i < p->extents; i++) {
        struct page_run all = partial_extent_pages(p, i);
        uint32_t end = all.first + all.count;
        bool keeps = own.count && own.first / EXTENT_PAGES == i;
        unclaim_between(parts, p, all.first, keeps ? own.first : end);
        unclaim_between(parts, p, keeps ? own.first + own.count : end, end);
    }
}

/* partial_release - ends the claims of an order that could not be queued. */
void partial_release(struct partials *parts, const struct monarch_order *order)
{
    int64_t large = presence_find(parts->job->flags, order->file);
    pthread_mutex_lock(&parts->lock);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p && p->order.word == order->word)
        pages_unclaim(p, (struct page_run){order->first_page, order->page_count});
    pthread_mutex_unlock(&parts->lock);
}

/* partial_await - waits up to AWAIT_MS for Pages that others copy; true: some Pages are free
 * now. */
bool partial_await(struct partials *parts, struct partial *p)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += AWAIT_MS * (long)MS_NS;
    until.tv_sec += until.tv_nsec / (long)SECOND_NS;
    until.tv_nsec %= (long)SECOND_NS;
    pthread_mutex_lock(&parts->lock);
    if (!p->ended)
        pthread_cond_timedwait(&parts->changed, &parts->lock, &until);
    bool left = pages_next_free(p, 0, p->pages) < p->pages;
    pthread_mutex_unlock(&parts->lock);
    return left;
}
