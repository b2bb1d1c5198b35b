/* orders.c - passes orders that the staging table has begun, and the lists of background fill, to
 * the threads that carry them out. */
#include "dataplane/demand/demand.h"

#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"

/* order_push - queues an order at its source; false: the queue is full. */
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

/* start_order - carries out an order that the table has begun. If the queue is full, the File
 * becomes absent again, and waiting programs request it again. */
void start_order(struct demand *d, const struct monarch_order *order)
{
    if (!order_push(d, order))
        monarch_table_fail(d->table, order, REASON_NONE, 1);
}

/* wake_all - wakes all threads to look for work; under the lock. */
static void wake_all(struct demand *d)
{
    idle_call_all(d->transfers);
    if (d->fetcher.of)
        d->fetcher.wake(d->fetcher.of);
}

/* fill_set - replaces the lists of Files to fill with. */
void fill_set(struct demand *d, const struct monarch_fill *fill)
{
    pthread_mutex_lock(&d->transfers->lock);
    d->fill.to_read = (struct fill_list){fill->to_read, fill->read_count, 0};
    d->fill.to_fetch = (struct fill_list){fill->to_fetch, fill->fetch_count, 0};
    partials_retry(d->partials);
    wake_all(d);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* fill_set_paused - pauses or resumes unasked fetches from peers. */
void fill_set_paused(struct demand *d, int paused)
{
    pthread_mutex_lock(&d->transfers->lock);
    if (d->fill.paused != !!paused) {
        d->fill.paused = paused;
        wake_all(d);
    }
    pthread_mutex_unlock(&d->transfers->lock);
}

/* fill_count_left - counts the Files of each list that fill has not passed yet, with those that are
 * staged in part, or have failed and wait for Python. */
void fill_count_left(struct demand *d, uint64_t out[2])
{
    pthread_mutex_lock(&d->transfers->lock);
    bool fills = d->fill.to_read.count || d->fill.to_fetch.count;
    out[0] = d->fill.to_read.count - d->fill.to_read.next;
    out[0] += fills ? partials_to_complete(d->partials) + d->transfers->done.count : 0;
    out[1] = d->fill.to_fetch.count - d->fill.to_fetch.next;
    pthread_mutex_unlock(&d->transfers->lock);
}

/* orders_submit - queues orders and returns how many it accepted: it stops at the first whose class
 * has ORDERS_MAX orders that are not collected yet. */
uint32_t orders_submit(struct demand *d, const struct monarch_order *orders, uint32_t n)
{
    uint32_t taken = 0;
    pthread_mutex_lock(&d->transfers->lock);
    while (taken < n && scheduler_push(d->transfers, &orders[taken]))
        taken++;
    pthread_mutex_unlock(&d->transfers->lock);
    return taken;
}
