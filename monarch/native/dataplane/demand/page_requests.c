/* page_requests.c - begins the Transfers of Pages that programs request, and checks partial
 * Replicas that no Transfer uses. */
#include "dataplane/demand/demand.h"

#include "dataplane/extents/eviction.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"
#include "shared/recency.h"

enum { CHECKED_MAX = 16 }; /* modified Files reported in one heartbeat */

/* begin_partly - begins to stage a File of which a program has requested Pages; false: it can be
 * staged only whole, or not at all. */
static bool begin_partly(struct demand *d, uint32_t file)
{
    struct monarch_order order;
    switch (eviction_begin_partly(d->eviction, d->table, file, &order)) {
    case VERDICT_BEGUN:
        if (partial_add(d->partials, &order))
            return true;
        monarch_table_fail(d->table, &order, REASON_NONE, 1);
        return false;
    case VERDICT_WHOLE:
        demand(d, file);
        return false;
    default:
        return false;
    }
}

/* is_for_peers - the order is for whole Blocks, as peers send them. */
static bool is_for_peers(const struct demand *d, const struct monarch_order *order)
{
    uint32_t end = order->first_page + order->page_count;
    return order->first_page % BLOCK_PAGES == 0 &&
           (end % BLOCK_PAGES == 0 ||
            end == pages_of(d->table->options.sizes[order->file]));
}

/* pages_send - sends an order for claimed Pages to the next source to try, or to a decoder; false:
 * its queue is full. */
bool pages_send(struct demand *d, struct monarch_order *order)
{
    if (extent_is_packed(d->partials, order->file, order_extent(order))) {
        packing_decode_order(d->transfers, order);
        return order_push(d, order);
    }
    if (!is_for_peers(d, order))
        order->tried = SOURCES_MAX;
    return table_page_source(d->table, order) && order_push(d, order);
}

/* want - raises Pages that fill has requested, here or on another node, as a program waits now. */
static void want(struct demand *d, struct page_range range)
{
    struct page_want wanted = {presence_file(d->job->flags, range.large), range.first,
                               range.count};
    scheduler_want_pages(d->transfers, &wanted);
    pthread_mutex_lock(&d->transfers->lock);
    if (d->fetcher.of)
        d->fetcher.want(d->fetcher.of, &wanted);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* pages_want_rest - raises all Pages of a File that fill has requested: a program waits for
 * them. */
void pages_want_rest(struct demand *d, struct partial *p)
{
    for (uint32_t extent = 0; partial_take_unasked(d->partials, p, &extent); extent++)
        want(d, (struct page_range){p->large, extent * EXTENT_PAGES, EXTENT_PAGES});
}

/* pages_check_asked - raises Pages that fill has claimed and now ordered, if a program requested
 * them in between: it has found no order. */
void pages_check_asked(struct demand *d, uint32_t large, struct page_run run)
{
    if (partial_asked_since(d->partials, large, run))
        want(d, (struct page_range){large, run.first, run.count});
}

/* push - queues the Transfer of each run; if a queue is full, the program requests the run
 * again. */
static void push(struct demand *d, uint32_t large, const struct page_claims *claims)
{
    for (uint32_t i = 0; i < claims->count; i++) {
        struct monarch_order order = claims->order;
        bool unasked = i >= claims->asked;
        order.kind &= MONARCH_PARTLY;
        order.kind |= unasked ? MONARCH_BACKGROUND : MONARCH_ASKED;
        order.first_page = claims->runs[i].first;
        order.page_count = claims->runs[i].count;
        if (!pages_send(d, &order))
            partial_release(d->partials, &order);
        else if (unasked)
            pages_check_asked(d, large, claims->runs[i]);
    }
}

static uint32_t root_of(const struct demand *d, uint32_t file)
{
    uint32_t root = 0;
    catalog_entry(d->job->catalog, file, &root);
    return root;
}

/* pages_requested - handles a request for Pages of a large File that a program waits for, or will
 * read soon; `unasked`: another node fills with them. */
void pages_requested(struct demand *d, struct page_range range, bool unasked)
{
    struct page_claims claims;
    const struct presence *p = presence_of(d->job->flags);
    if (!d->partials->count || !p || range.large >= p->count)
        return;
    uint32_t file = presence_file(d->job->flags, range.large);
    uint32_t word = replica_load(d->job->catalog, file);
    uint32_t widest = health_widest(d->transfers, root_of(d, file));
    const struct claiming how = {
        .unasked = unasked, .widest = widest, .through = unasked ? 0 : widest - 1};
    atomic_store_explicit(&d->asked_ns, clock_ns(), memory_order_relaxed);
    if (!unasked)
        recency_note(d->job->flags, file);
    if (STATE_OF(word) == REPLICA_ABSENT && !begin_partly(d, file))
        return;
    partial_claim_range(d->partials, range, &how, &claims);
    push(d, range.large, &claims);
    if (claims.of_fill)
        want(d, range);
}

/* pages_resume - carries out the orders that fetching threads have handed over. */
void pages_resume(struct demand *d)
{
    struct monarch_order order;
    while (d->partials->count && partial_take_handed(d->partials, &order)) {
        bool complete = order.tried == PAGES_PRESENT;
        if (complete ? order_push(d, &order) : pages_send(d, &order))
            continue;
        if (complete)
            partial_finish_later(d->partials, order.file);
        else
            partial_release(d->partials, &order);
    }
}

/* pages_check - frees the space of Files that are not staged any more, and begins Transfers that
 * report written ones to Python; called with each heartbeat. */
void pages_check(struct demand *d)
{
    struct monarch_order orders[CHECKED_MAX];
    if (!d->partials->count)
        return;
    uint32_t n = partials_check(d->partials, orders, CHECKED_MAX);
    for (uint32_t i = 0; i < n; i++)
        order_push(d, &orders[i]);
}
