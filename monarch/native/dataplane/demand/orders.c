/* orders.c - passes what the staging table has begun, and the lists of background fill, to
 * the threads that carry them out. */
#include "dataplane/demand/demand.h"

#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"

/* order_push - queues an order at its source; false: there are too many. */
bool order_push(struct demand *d, const struct monarch_order *order)
{
    bool pushed = false;
    pthread_mutex_lock(&d->transfers->lock);
    if (order->peer == NO_PEER)
        pushed = scheduler_push(d->transfers, order);
    else if (d->fetcher.of)
        pushed = d->fetcher.push(d->fetcher.of, order);
    pthread_mutex_unlock(&d->transfers->lock);
    return pushed;
}

/* start_order - carries out an order that the table has begun. If it is not taken, the
 * File is absent again, and programs that wait ask again. */
void start_order(struct demand *d, const struct monarch_order *order)
{
    if (!order_push(d, order))
        monarch_table_fail(d->table, order, REASON_NONE, 1);
}

/* wake_all - lets all threads see what is to be done now; under the lock. */
static void wake_all(struct demand *d)
{
    idle_call_all(d->transfers);
    if (d->fetcher.of)
        d->fetcher.wake(d->fetcher.of);
}

/* fill_set - goes through these Files from now on, instead of those before. */
void fill_set(struct demand *d, const struct monarch_fill *fill)
{
    pthread_mutex_lock(&d->transfers->lock);
    d->fill.to_read = (struct fill_list){fill->to_read, fill->read_count, 0};
    d->fill.to_fetch = (struct fill_list){fill->to_fetch, fill->fetch_count, 0};
    partials_retry(d->partials);
    wake_all(d);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* fill_set_paused - fetches nothing from peers unasked, or goes on. */
void fill_set_paused(struct demand *d, int paused)
{
    pthread_mutex_lock(&d->transfers->lock);
    if (d->fill.paused != !!paused) {
        d->fill.paused = paused;
        wake_all(d);
    }
    pthread_mutex_unlock(&d->transfers->lock);
}

/* fill_count_left - how many Files of each list have not been looked at, or are
 * staged in part, or have failed and are to be judged. */
void fill_count_left(struct demand *d, uint64_t out[2])
{
    pthread_mutex_lock(&d->transfers->lock);
    bool fills = d->fill.to_read.count || d->fill.to_fetch.count;
    out[0] = d->fill.to_read.count - d->fill.to_read.next;
    out[0] += fills ? partials_to_complete(d->partials) + d->transfers->done.count : 0;
    out[1] = d->fill.to_fetch.count - d->fill.to_fetch.next;
    pthread_mutex_unlock(&d->transfers->lock);
}

/* orders_submit - queues orders and returns how many it accepted: it stops at
 * the first whose class has ORDERS_MAX orders that are not collected yet. */
uint32_t orders_submit(struct demand *d, const struct monarch_order *orders, uint32_t n)
{
    uint32_t taken = 0;
    pthread_mutex_lock(&d->transfers->lock);
    while (taken < n && scheduler_push(d->transfers, &orders[taken]))
        taken++;
    pthread_mutex_unlock(&d->transfers->lock);
    return taken;
}
