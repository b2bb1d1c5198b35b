/* file_requests.c - begins Files that programs and peers request: by the staging table, without
 * Python. */
#include "dataplane/demand/demand.h"

#include "dataplane/extents/eviction.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"

/* demand_wanted - a request for a File in its state has an effect: it may be staged, or it is READY
 * and a program could not open its Replica. */
bool demand_wanted(const struct demand *d, uint32_t file)
{
    uint32_t word = replica_load(d->job->catalog, file);
    if (STATE_OF(word) == REPLICA_READY)
        return true;
    if (STATE_OF(word) == REPLICA_STAGING)
        return partial_lacks(d->partials, file) ||
               partial_wants_whole(d->partials, file);
    return STATE_OF(word) == REPLICA_ABSENT && STATE_REASON(word) == REASON_NONE;
}

/* is_stalled - the origin has to be read, and does not answer. */
static bool is_stalled(struct demand *d, const struct monarch_order *order)
{
    uint32_t root = 0;
    if (order->peer != NO_PEER || (order->kind & (MONARCH_ADOPT | MONARCH_LOCAL)))
        return false;
    catalog_entry(d->job->catalog, order->file, &root);
    pthread_mutex_lock(&d->transfers->lock);
    bool stalled = d->transfers->roots[root].stalled;
    pthread_mutex_unlock(&d->transfers->lock);
    return stalled;
}

static void begin(struct demand *d, const struct monarch_order *order)
{
    if (is_stalled(d, order)) {
        monarch_table_fail(d->table, order, REASON_BUSY, 1);
        report_file(d->transfers, order->file); /* Python tries it again */
        return;
    }
    start_order(d, order);
}

/* is_whole - programs wait until all of the File is staged. */
static bool is_whole(const struct demand *d, uint32_t file)
{
    const struct flags *f = d->job->flags;
    const _Atomic uint8_t *whole = (const _Atomic uint8_t *)f + f->whole;
    return f->whole &&
           atomic_load_explicit(&whole[file], memory_order_relaxed) >= WHOLE_NAMED &&
           d->table->options.sizes[file] <= d->job->catalog->cold_wait_max_whole_bytes;
}

/* begin_rest - begins the rest of a File of which programs have read Pages. If the queue is full,
 * programs request it again. */
static void begin_rest(struct demand *d, uint32_t file)
{
    struct monarch_order order;
    pthread_mutex_lock(&d->transfers->lock);
    if (d->transfers->outstanding[CLASS_DEMAND] < ORDERS_MAX &&
        partial_order_rest(d->partials, file, &order))
        scheduler_push(d->transfers, &order);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* demand_begin - begins the Transfer of a File for programs, or, without MONARCH_ASKED, for fill.
 * Files that only Python can judge are reported to it: a Replica that could not be opened, and a
 * File whose origin does not answer. */
void demand_begin(struct demand *d, uint32_t file, uint32_t kind)
{
    struct monarch_order order;
    /* For other nodes, waiting programs are unknown. */
    if ((kind & MONARCH_ASKED) &&
        (partial_lacks(d->partials, file) || partial_wants_whole(d->partials, file))) {
        begin_rest(d, file);
        return;
    }
    if ((kind & MONARCH_ASKED) && (job_awaits(d->job, file) || is_whole(d, file)))
        kind |= MONARCH_AWAITED;
    switch (eviction_begin(d->eviction, d->table, file, kind, &order)) {
    case VERDICT_BEGUN:
        begin(d, &order);
        break;
    case VERDICT_READY:
    case VERDICT_WRITTEN:
        report_file(d->transfers, file);
        break;
    case VERDICT_POOL:
        pool_queue_wait(d->pool_queue, file);
        break;
    default:
        break;
    }
}

/* demand - begins a File that a program requests; without a table, Python does. */
void demand(struct demand *d, uint32_t file)
{
    atomic_store_explicit(&d->asked_ns, clock_ns(), memory_order_relaxed);
    if (d->table)
        demand_begin(d, file, MONARCH_ASKED);
    else
        report_file(d->transfers, file);
}

/* demand_for_peer - requests a File on behalf of another node. */
void demand_for_peer(struct demand *d, uint32_t file)
{
    if (demand_wanted(d, file))
        demand(d, file);
    else
        scheduler_want(d->transfers, file);
}
