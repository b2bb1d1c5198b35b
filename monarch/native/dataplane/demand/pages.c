/* pages.c - the route of Pages: requested ones, or all missing ones of a large File. */
#include <errno.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/demand/demand.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"

enum {
    CHUNK_PAGES = CHUNK_BYTES / PAGE_BYTES,
    UNABLE = STEP_ELSEWHERE + 1,
    ROOMLESS,
};

/* ---- the Transfer ---------------------------------------------------------------- */

/* has_arrived - the order is for Pages that are present: only their Extent is completed. */
static bool has_arrived(const struct transfer *t)
{
    return t->order.tried == PAGES_PRESENT;
}

static struct demand *demand_of(const struct transfers *ts)
{
    return ts->unasked.of;
}

static int check(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct demand *d = demand_of(ts);
    int rc = partial_enter(d->partials, &t->order, &t->partial);
    if (rc)
        return rc;
    t->pages.next = t->order.first_page;
    t->pages.end = t->order.first_page + t->order.page_count;
    if (has_arrived(t))
        t->pages.next = t->pages.end;
    table_busy(d->table, true);
    return transfer_check(ts, t, buffer);
}

/* may_share - a large File of another job may be linked: its checksums are not needed, and no part
 * of it is here. */
static bool may_share(struct demand *d, const struct transfer *t, struct page_run own)
{
    const struct transfers *ts = d->transfers;
    return ts->siblings && ts->options.alone && !ts->sealer && !ts->options.retains &&
           !has_arrived(t) && partial_is_untouched(d->partials, t->partial, own);
}

/* link_whole - links the File, unless a file for its Pages exists; no other Transfer creates one
 * meanwhile. */
static bool link_whole(struct demand *d, struct partial *p)
{
    pthread_mutex_lock(&p->opening);
    bool linked = !p->files[p->order.tier].ino &&
                  !sharing_link(d->transfers, &p->order);
    if (linked)
        partial_end_linked(d->partials, p);
    pthread_mutex_unlock(&p->opening);
    return linked;
}

/* share - links the File from another job of this user; false: no job has it whole, or a part of it
 * is here. Only fill waits for a job that reads it: a program waits for few Pages. */
static bool share(struct demand *d, struct transfer *t)
{
    struct partial *p = t->partial;
    const struct page_run own = {t->order.first_page, t->order.page_count};
    bool waits = order_class(t->order.kind) == CLASS_BACKGROUND && !own.count;
    if (!may_share(d, t, own) || !sharing_has(d->transfers, t, waits) ||
        !partial_claim_whole(d->partials, p, own))
        return false;
    bool linked = link_whole(d, p);
    if (!linked)
        partial_unclaim_whole(d->partials, p, own);
    return linked;
}

/* gather - links the File, or, for an order of all of it, calls partial_assemble_whole(). */
static int gather(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    if (share(demand_of(ts), t))
        t->pages.next = t->pages.end;
    else if (!t->order.page_count)
        return partial_assemble_whole(ts, t, buffer);
    return 0;
}

/* next_count - returns how many Pages to read next: they end at a multiple of their number. */
static uint32_t next_count(const struct transfer *t, uint32_t first)
{
    uint32_t most = t->read.chunks * CHUNK_PAGES;
    return most - first % most;
}

/* rest_of_extent - returns the number of Pages from this one to the end of its Extent. */
static uint32_t rest_of_extent(const struct transfer *t, uint32_t page)
{
    struct page_run all = partial_extent_pages(t->partial, page / EXTENT_PAGES);
    return all.first + all.count - page;
}

/* copy_asked - copies the Pages that programs have requested, which are claimed already. It does
 * not yield: programs may wait for any of them. */
static int copy_asked(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    int rc = 0;
    while (!rc && t->pages.next < t->pages.end) {
        uint32_t left = t->pages.end - t->pages.next;
        uint32_t most = next_count(t, t->pages.next);
        struct page_run run = {t->pages.next, left < most ? left : most};
        t->pages.next += run.count;
        rc = pages_copy(d, t, run, buffer);
        health_note_step(d->transfers, t);
    }
    return rc;
}

/* may_fetch_unasked - unasked fetches from peers leave space for programs. */
static bool may_fetch_unasked(struct demand *d)
{
    pthread_mutex_lock(&d->transfers->lock);
    bool may = d->fetcher.of && !d->fill.paused && d->fetcher.has_room(d->fetcher.of);
    pthread_mutex_unlock(&d->transfers->lock);
    return may;
}

/* is_full - as much is being fetched as is allowed: by fill in all, or else of this File. */
static bool is_full(struct demand *d, const struct transfer *t)
{
    pthread_mutex_lock(&d->partials->lock);
    bool full = t->partial->claims >= FETCHED_PAGES_MAX;
    pthread_mutex_unlock(&d->partials->lock);
    if (full)
        return true;
    return order_class(t->order.kind) == CLASS_BACKGROUND && !may_fetch_unasked(d);
}

/* waits_for_pool - an Extent is to be packed, and the Pool has no space for it now. */
static bool waits_for_pool(struct demand *d, const struct transfer *t, uint32_t page)
{
    pthread_mutex_lock(&d->partials->lock);
    bool waits = extent_goes_packed(d->partials, t->partial, page / EXTENT_PAGES);
    pthread_mutex_unlock(&d->partials->lock);
    return waits;
}

/* is_needless - fill would read for nodes that have left, and no program runs on this node: all
 * leave when the job ends, and Pages not fetched by then are of no use. */
static bool is_needless(struct demand *d, const struct monarch_order *order)
{
    return order->tried && order_class(order->kind) == CLASS_BACKGROUND &&
           fill_paused(d);
}

/* is_decoded - the Pages are in a frame, of a File that is being assembled. */
static bool is_decoded(struct demand *d, const struct transfer *t, uint32_t extent)
{
    return t->partial->gathers && extent_is_packed(d->partials, t->order.file, extent);
}

/* send - sends an order for claimed Pages to their owner, or to a decoder. */
static int send(struct demand *d, struct transfer *t, struct monarch_order *order,
                bool unasked)
{
    const struct page_run run = {order->first_page, order->page_count};
    if (!pages_send(d, order)) {
        partial_unclaim(d->partials, t->partial, run, false);
        return UNABLE;
    }
    if (unasked)
        pages_check_asked(d, t->partial->large, run);
    return 0;
}

/* bring - copies the next missing Pages: from their owner, out of a frame or by this Transfer
 * itself; UNABLE: not now; ROOMLESS: no Tier has space for them. */
static int bring(struct demand *d, struct transfer *t, uint32_t next, uint8_t *buffer)
{
    struct monarch_order order = t->order;
    uint32_t extent = next / EXTENT_PAGES;
    struct claiming how = {.through = health_widest(d->transfers, t->turn.queue) - 1};
    order.first_page = next;
    order.tried = 0;
    bool packed = is_decoded(d, t, extent);
    bool may = packed || table_page_source(d->table, &order);
    bool sent = packed || order.peer != NO_PEER;
    if (!may || (sent && is_full(d, t)) || (!sent && is_needless(d, &order)))
        return UNABLE;
    how.unasked = sent && order_class(order.kind) == CLASS_BACKGROUND;
    how.blocks = sent;
    const struct page_run within = {next, sent ? rest_of_extent(t, next)
                                               : next_count(t, next)};
    bool roomless;
    struct page_run run = partial_claim_next(d->partials, t->partial, within, &how,
                                             &roomless);
    order.first_page = run.first;
    order.page_count = run.count;
    if (!run.count)
        return roomless && t->partial->pieces && !waits_for_pool(d, t, next) ? ROOMLESS
                                                                             : UNABLE;
    return sent ? send(d, t, &order, how.unasked) : pages_copy(d, t, run, buffer);
}

/* bring_missing - copies the next piece that no other Transfer copies. STEP_MORE: more may be
 * missing. UNABLE: some of it cannot be copied now. */
static int bring_missing(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    for (;;) {
        uint32_t next = partial_find_next(d->partials, t->partial, t->pages.next);
        if (next == t->partial->pages)
            return t->pages.unable ? UNABLE : 0;
        int rc = bring(d, t, next, buffer);
        health_note_step(d->transfers, t);
        t->pages.unable = t->pages.unable || rc == UNABLE;
        if (rc != UNABLE && rc != ROOMLESS)
            return rc ? rc : STEP_MORE;
        /* another Extent may have another source */
        t->pages.next = (next / EXTENT_PAGES + 1) * EXTENT_PAGES;
    }
}

/* bring_next - copies the requested Pages, or the next missing piece. */
static int bring_next(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    if (t->order.page_count)
        return copy_asked(demand_of(ts), t, buffer);
    int rc = bring_missing(demand_of(ts), t, buffer);
    return rc == UNABLE ? 0 : rc;
}

/* leave - ends a Transfer of fill that can copy nothing more now: it continues the File later,
 * unless all that this node keeps of it is present. */
static int leave(struct demand *d, struct transfer *t)
{
    if (!t->pages.unable && t->partial->pieces)
        partial_abandon(d->partials, t->partial);
    else
        partial_postpone(d->partials, t->partial);
    return 0;
}

/* await - waits for the copies of others. STEP_MORE: Pages that they gave up may be copied. */
static int await(struct demand *d, struct transfer *t)
{
    int rc = 0;
    bool changed = false;
    while (!changed && !job_stopping(d->job)) {
        readers_leave(d->transfers, t);
        pages_want_rest(d, t->partial);
        health_note_wait(t, true);
        changed = partial_await(d->partials, t->partial);
        health_note_wait(t, false);
        if (partial_ended(d->partials, t->partial, &rc))
            return rc;
        t->pages.next = 0;
        t->pages.unable = false;
    }
    return changed ? STEP_MORE : -ECANCELED;
}

/* complete_extent - completes an Extent all of whose Pages are present. */
static int complete_extent(struct demand *d, struct transfer *t, uint8_t *buffer)
{
    uint32_t extent = order_extent(&t->order);
    int rc = partial_borrow(d->transfers, t, extent, false);
    return rc ? rc : pages_end_extent(d, t, extent, buffer);
}

/* complete - ends the order; for programs it waits until all Pages are present. */
static int complete(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct demand *d = demand_of(ts);
    int rc;
    if (has_arrived(t))
        return complete_extent(d, t, buffer);
    if (t->order.page_count)
        return 0;
    if (partial_ended(d->partials, t->partial, &rc))
        return rc;
    bool leaves = order_class(t->order.kind) == CLASS_BACKGROUND || t->partial->pieces;
    return leaves ? leave(d, t) : await(d, t);
}

/* give_up - releases the Pages that a failed Transfer has claimed and not copied. */
static void give_up(struct demand *d, struct transfer *t)
{
    uint32_t left = t->pages.end - t->pages.next;
    if (!t->order.page_count || t->pages.next >= t->pages.end)
        return;
    partial_unclaim(d->partials, t->partial, (struct page_run){t->pages.next, left},
                    true);
    t->pages.next = t->pages.end;
}

/* spares_file - the origin failed at some Pages, but perhaps not at others: programs that request
 * these get the origin's own error. */
static bool spares_file(const struct transfer *t, int rc)
{
    return t->order.page_count && t->step == MONARCH_STEP_READ && rc != -ESTALE;
}

/* has_left - a File that no program waits for has ended otherwise meanwhile: no failure. */
static bool has_left(struct demand *d, const struct transfer *t, int rc)
{
    int status;
    bool waited = !t->order.page_count && order_class(t->order.kind) == CLASS_DEMAND;
    return rc == -ECANCELED && !waited && !job_stopping(d->job) &&
           partial_ended(d->partials, t->partial, &status);
}

/* settle - returns the result for Python. */
static int settle(struct transfers *ts, struct transfer *t, int rc)
{
    struct demand *d = demand_of(ts);
    struct partial *p = t->partial;
    partial_return(t);
    if (!p) /* for Pages: the File has ended before */
        return t->order.page_count ? 0 : rc;
    table_busy(d->table, false);
    give_up(d, t);
    if (rc && (spares_file(t, rc) || has_left(d, t, rc)))
        rc = 0;
    if (rc && rc != -ECANCELED && !partial_end(d->partials, p, rc))
        rc = 0; /* another Transfer has reported it, or has published the File */
    partial_leave(d->partials, p, !t->order.page_count);
    return rc;
}

const struct route route_pages = {
    .steps = {[TRANSFER_CHECK] = check,
              [TRANSFER_OPEN] = gather,
              [TRANSFER_BRING] = bring_next,
              [TRANSFER_VERIFY] = complete},
    .settle = settle,
};
