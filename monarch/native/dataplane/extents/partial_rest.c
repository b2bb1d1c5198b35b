/* partial_rest.c - completes partial Replicas: a Transfer copies the rest for programs that wait
 * for all of a File; fill copies it now, or when peers have more. */
#include <limits.h>
#include <stdlib.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table.h"

enum { LOOKS_MAX = 1024 }; /* Extents in one call, of which most may be present */

static bool lacks(const struct partial *p)
{
    return !p->ended && !p->completing;
}

static bool is_incomplete(const struct partial *p)
{
    return lacks(p) && !p->postponed;
}

static bool is_begun(const struct partial *p)
{
    return is_incomplete(p) && !(p->order.kind & MONARCH_PARTLY);
}

/* partial_set_stage - sets whether a Transfer completes it, cannot do so just now, and whether it
 * has ended; under the lock. */
void partial_set_stage(struct partials *all, struct partial *p, struct stage now)
{
    uint32_t incomplete = is_incomplete(p), begun = is_begun(p), there = !p->ended;
    uint32_t abandoned = p->abandoned;
    p->completing = now.completing;
    p->postponed = now.postponed || now.abandoned;
    p->abandoned = now.abandoned && !now.ended;
    p->ended = now.ended;
    atomic_fetch_add(&all->incomplete, is_incomplete(p) - incomplete);
    atomic_fetch_add(&all->begun, is_begun(p) - begun);
    atomic_fetch_add(&all->unended, !p->ended - there);
    atomic_fetch_add(&all->abandoned, p->abandoned - abandoned);
}

/* partial_count_new - counts a new one; under the lock. */
void partial_count_new(struct partials *all, const struct partial *p)
{
    atomic_fetch_add(&all->unended, 1);
    atomic_fetch_add(&all->incomplete, is_incomplete(p));
    atomic_fetch_add(&all->begun, is_begun(p));
}

/* partial_clear_postponed - lets fill continue with it; under the lock. */
void partial_clear_postponed(struct partials *all, struct partial *p)
{
    partial_set_stage(all, p,
                      (struct stage){p->completing, false, p->ended, p->abandoned});
}

/* partial_abandon - abandons it, as no peer has the rest: fill leaves it as it is until peers have
 * news, or a program requests all of it. */
void partial_abandon(struct partials *parts, struct partial *p)
{
    pthread_mutex_lock(&parts->lock);
    partial_set_stage(parts, p, (struct stage){p->completing, true, p->ended, true});
    pthread_mutex_unlock(&parts->lock);
}

/* partials_retry - lets fill complete all abandoned ones again; the caller holds the lock of the
 * engine. */
void partials_retry(struct partials *parts)
{
    if (!parts->count || !atomic_load(&parts->abandoned))
        return;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t i = 0; i < parts->count; i++) {
        struct partial *p = parts->all[i];
        if (p && p->abandoned)
            partial_set_stage(parts, p, (struct stage){.completing = p->completing});
    }
    pthread_mutex_unlock(&parts->lock);
}

/* partial_postpone - postpones the rest, which cannot be copied just now: peers already have as
 * many requests as allowed. */
void partial_postpone(struct partials *parts, struct partial *p)
{
    pthread_mutex_lock(&parts->lock);
    partial_set_stage(parts, p,
                      (struct stage){p->completing, true, p->ended, p->abandoned});
    pthread_mutex_unlock(&parts->lock);
}

/* partial_resume - lets fill continue with a File after a peer has sent the requested Blocks. */
void partial_resume(struct partials *parts, uint32_t file)
{
    int64_t large = presence_find(parts->job->flags, file);
    pthread_mutex_lock(&parts->lock);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p && p->postponed)
        partial_clear_postponed(parts, p);
    pthread_mutex_unlock(&parts->lock);
}

/* partials_incomplete - some Files are present in part, and no Transfer copies the rest. */
bool partials_incomplete(const struct partials *parts)
{
    return parts->count && atomic_load(&parts->incomplete);
}

/* partials_begun - fill has begun some of these; they are not left for the end. */
bool partials_begun(const struct partials *parts)
{
    return parts->count && atomic_load(&parts->begun);
}

/* partials_to_complete - returns the number of partially staged Files that will be completed. */
uint32_t partials_to_complete(const struct partials *parts)
{
    return parts->count ? atomic_load(&parts->unended) - atomic_load(&parts->abandoned)
                        : 0;
}

/* partial_next_incomplete - makes an order for the rest of such a File; `begun`: of one that fill
 * has begun. */
bool partial_next_incomplete(struct partials *parts, bool begun,
                             struct monarch_order *out)
{
    bool found = false;
    if (begun ? !partials_begun(parts) : !partials_incomplete(parts))
        return false;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t i = 0; !found && i < parts->count; i++) {
        struct partial *p = parts->all[i];
        found = p && (begun ? is_begun(p) : is_incomplete(p));
        if (!found)
            continue;
        partial_set_stage(parts, p, (struct stage){.completing = true});
        *out = p->order;
        out->kind |= MONARCH_BACKGROUND;
    }
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* may_fetch - peers may be asked for the missing Pages, as fill keeps all of it in one file of a
 * Tier. */
static bool may_fetch(const struct partials *parts, const struct partial *p)
{
    return p && !p->ended && !p->abandoned && !p->pieces && !p->gathers &&
           p->claims < FETCHED_PAGES_MAX && !table_is_pool(parts->table, p->order.tier);
}

/* next_large - advances to the next File. */
static void next_large(struct partials *parts)
{
    parts->fetch_extent = 0;
    parts->fetch_large = (parts->fetch_large + 1) % parts->count;
}

/* claim_fetch - claims the first Pages of an Extent that a peer is to send; false: none. */
static bool claim_fetch(struct partials *parts, struct partial *p, uint32_t extent,
                        struct monarch_order *out)
{
    const struct claiming how = {.unasked = true, .blocks = true};
    struct page_run all = partial_extent_pages(p, extent);
    const struct extent *e = &p->each[extent];
    *out = p->order;
    out->kind |= MONARCH_BACKGROUND;
    out->first_page = all.first;
    out->tried = 0;
    if (e->present + e->claimed >= all.count ||
        !table_keeps_extent(parts->table, out->file, extent) ||
        !table_page_source(parts->table, out) || out->peer == NO_PEER)
        return false;
    struct page_run run = pages_free_run(p, all, &how);
    if (!run.count)
        return false;
    pages_claim(p, run);
    pages_set_unasked(p, run);
    out->first_page = run.first;
    out->page_count = run.count;
    return true;
}

/* partial_next_fetch - makes an order for Pages that fill requests from a peer, independent of
 * Transfers of the origin: File by File, Extent by Extent. It checks at most LOOKS_MAX Extents. */
bool partial_next_fetch(struct partials *parts, struct monarch_order *out)
{
    bool found = false;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t looks = 0; !found && parts->count && looks < LOOKS_MAX; looks++) {
        struct partial *p = parts->all[parts->fetch_large];
        if (!may_fetch(parts, p) || parts->fetch_extent >= p->extents)
            next_large(parts);
        else
            found = claim_fetch(parts, p, parts->fetch_extent++, out);
    }
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* incomplete_of - returns a partial Replica if no Transfer copies the rest; under the lock. */
static struct partial *incomplete_of(const struct partials *parts, uint32_t file)
{
    int64_t large = presence_find(parts->job->flags, file);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    return p && lacks(p) ? p : NULL;
}

/* partial_lacks - the File is staged in part, and no Transfer copies the rest. */
bool partial_lacks(struct partials *parts, uint32_t file)
{
    if (!parts->count || !atomic_load(&parts->unended))
        return false;
    pthread_mutex_lock(&parts->lock);
    bool found = incomplete_of(parts, file) != NULL;
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* is_to_be_whole - a program waits for all of a File that is in pieces and may be whole; under
 * the lock. */
static bool is_to_be_whole(const struct partials *parts, const struct partial *p)
{
    uint32_t pieces = part_pieces(p->part);
    return !p->ended && pieces & PIECES_PACKED && !(pieces & PIECES_STAY) &&
           job_awaits(parts->job, p->order.file);
}

/* partial_wants_whole - the same for a File that may not be staged at all. */
bool partial_wants_whole(struct partials *parts, uint32_t file)
{
    int64_t large = parts->count ? presence_find(parts->job->flags, file) : -1;
    if (large < 0)
        return false;
    pthread_mutex_lock(&parts->lock);
    const struct partial *p = parts->all[large];
    bool found = p && is_to_be_whole(parts, p);
    pthread_mutex_unlock(&parts->lock);
    return found;
}

/* is_at_rest - no Transfer uses it, and none is under way. */
static bool is_at_rest(const struct partial *p)
{
    bool rests = !p->users && !p->completing;
    for (uint32_t i = 0; rests && i < p->extents; i++)
        rests = !p->each[i].claimed;
    return rests;
}

/* may_move - all its present Extents are packed, or in the Pool. */
static bool may_move(const struct partial *p)
{
    bool may = part_pieces(p->part) & PIECES_PACKED;
    for (uint32_t i = 0; may && i < p->extents; i++)
        may = partial_place(p, i) == PLACE_NONE || partial_place(p, i) & PLACE_FILE;
    return may;
}

/* make_whole - reserves the room for all of a File in pieces, so that the Transfer of its rest can
 * assemble it. Without that room, programs fall back to the origin; while a Transfer uses the File,
 * they ask again. */
static void make_whole(struct partials *parts, struct partial *p)
{
    uint32_t file = p->order.file;
    if (!may_move(p) || table_make_whole(parts->table, file, false) < 0) {
        atomic_fetch_or((_Atomic uint32_t *)&p->part->pieces, PIECES_STAY);
        return;
    }
    int tier = is_at_rest(p) ? table_make_whole(parts->table, file, true) : -1;
    if (tier < 0)
        return;
    p->order.tier = (uint16_t)tier;
    p->pieces = false;
    p->gathers = true;
    for (uint32_t i = 0; i < p->extents; i++) {
        if (partial_place(p, i) == PLACE_NONE)
            partial_set_place(p, i, (uint8_t)tier);
        else
            pages_claim_all(p, i);
    }
}

/* partial_reconsider - allows a File in pieces to be whole if it has room by now, as others take
 * less than expected, or have left; under the lock. */
void partial_reconsider(struct partials *parts, struct partial *p)
{
    if (part_pieces(p->part) & PIECES_STAY && may_move(p) &&
        table_make_whole(parts->table, p->order.file, false) >= 0)
        atomic_fetch_and((_Atomic uint32_t *)&p->part->pieces, ~PIECES_STAY);
}

/* partial_order_rest - makes an order for the rest of such a File, as demand: a program waits for
 * all of it. */
bool partial_order_rest(struct partials *parts, uint32_t file,
                        struct monarch_order *out)
{
    pthread_mutex_lock(&parts->lock);
    int64_t large = presence_find(parts->job->flags, file);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    if (p && p->pieces && is_to_be_whole(parts, p))
        make_whole(parts, p);
    p = incomplete_of(parts, file);
    if (p && p->pieces)
        p = NULL; /* it will not be whole, or not yet */
    if (p) {
        partial_set_stage(parts, p, (struct stage){.completing = true});
        *out = p->order;
        out->kind = MONARCH_ASKED | (p->order.kind & MONARCH_PARTLY);
    }
    pthread_mutex_unlock(&parts->lock);
    return p != NULL;
}

/* wake_refused - lets programs ask again for Extents that had no room: Pages of another one have
 * arrived, so that it can be evicted. */
static void wake_refused(struct partials *parts)
{
    struct pooled_extent one;
    while (ring_pop(&parts->refused, &one))
        futex_wake(presence_changes(parts->job->flags, one.large) + one.extent,
                   INT_MAX);
}

/* partial_wake - wakes all threads that wait for Pages of an Extent. */
void partial_wake(struct partials *parts, struct partial *p, uint32_t extent)
{
    atomic_fetch_add_explicit(&p->changes[extent], 1, memory_order_release);
    futex_wake(&p->changes[extent], INT_MAX);
    wake_refused(parts);
    replica_watches_wake(parts->job->catalog);
    pthread_cond_broadcast(&parts->changed);
}

/* partial_end_linked - ends one published as the file of another job, without checksums. */
void partial_end_linked(struct partials *parts, struct partial *p)
{
    pthread_mutex_lock(&parts->lock);
    partial_set_stage(parts, p,
                      (struct stage){.completing = p->completing, .ended = true});
    p->status = 0;
    free(p->digests);
    p->digests = NULL;
    for (uint32_t i = 0; i < p->extents; i++)
        partial_wake(parts, p, i);
    pthread_cond_broadcast(&parts->changed);
    pthread_mutex_unlock(&parts->lock);
}
