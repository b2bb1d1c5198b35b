/* orders.c - gives what the staging table has begun, and the lists of background fill, to
 * the threads that carry them out. */
#include "dataplane/demand/demand.h"

#include "dataplane/extents/partial.h"
#include "dataplane/peers/peer_client.h"
#include "dataplane/extents/staging_table.h"

/* order_push - queues an order at its source; false: there are too many. */
bool order_push(struct engine *e, const struct monarch_order *order)
{
    bool pushed = false;
    pthread_mutex_lock(&e->lock);
    if (order->peer == NO_PEER)
        pushed = scheduler_push(e, order);
    else if (e->receiver)
        pushed = receiver_push(e->receiver, order);
    pthread_mutex_unlock(&e->lock);
    return pushed;
}

/* start_order - carries out an order that the table has begun. If it is not taken, the
 * File is absent again, and programs that wait ask again. */
void start_order(struct engine *e, const struct monarch_order *order)
{
    if (!order_push(e, order))
        monarch_table_fail(e->table, order, REASON_NONE, 1);
}

/* wake_all - lets all threads see what is to be done now; under the lock. */
static void wake_all(struct engine *e)
{
    idle_call_all(e);
    if (e->receiver)
        receiver_wake(e->receiver);
}

/* monarch_engine_fill - goes through these Files from now on, instead of those before. */
void monarch_engine_fill(struct engine *e, const struct monarch_fill *fill)
{
    pthread_mutex_lock(&e->lock);
    e->fill.to_read = (struct fill_list){fill->to_read, fill->read_count, 0};
    e->fill.to_fetch = (struct fill_list){fill->to_fetch, fill->fetch_count, 0};
    partials_retry(e);
    wake_all(e);
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_fill_pause - fetches nothing from peers unasked, or goes on. */
void monarch_engine_fill_pause(struct engine *e, int paused)
{
    pthread_mutex_lock(&e->lock);
    if (e->fill.paused != !!paused) {
        e->fill.paused = paused;
        wake_all(e);
    }
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_fill_left - how many Files of each list have not been looked at, or are
 * staged in part, or have failed and are to be judged. */
void monarch_engine_fill_left(struct engine *e, uint64_t out[2])
{
    pthread_mutex_lock(&e->lock);
    bool fills = e->fill.to_read.count || e->fill.to_fetch.count;
    out[0] = e->fill.to_read.count - e->fill.to_read.next;
    out[0] += fills ? partials_to_complete(e) + e->done.count : 0;
    out[1] = e->fill.to_fetch.count - e->fill.to_fetch.next;
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_submit - queues orders and returns how many it accepted: it stops at
 * the first whose class has ORDERS_MAX orders that are not collected yet. */
uint32_t monarch_engine_submit(struct engine *e, const struct monarch_order *orders,
                               uint32_t n)
{
    uint32_t taken = 0;
    pthread_mutex_lock(&e->lock);
    while (taken < n && scheduler_push(e, &orders[taken]))
        taken++;
    pthread_mutex_unlock(&e->lock);
    return taken;
}
