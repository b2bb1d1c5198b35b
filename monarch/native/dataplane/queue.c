/* queue.c - what waits, what runs next, what has ended: all decisions of the engine. */
#include "dataplane/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/request.h"
#include "dataplane/transfer.h"
#include "shared/index.h"

/* queue_init - makes all queues; every Transfer that can be begun has its place. */
int queue_init(struct engine *e)
{
    uint32_t transfers = e->options.threads + e->options.background_max;
    e->transfers = calloc(transfers, sizeof(*e->transfers));
    e->asked_bits = calloc(e->catalog->file_count / 8 + 1, 1);
    if (!e->transfers || !e->asked_bits ||
        ring_init(&e->orders[CLASS_DEMAND], sizeof(struct monarch_order), ORDERS_MAX) ||
        ring_init(&e->orders[CLASS_BACKGROUND], sizeof(struct monarch_order),
                  ORDERS_MAX) ||
        ring_init(&e->parked, sizeof(struct transfer *), transfers) ||
        ring_init(&e->spare, sizeof(struct transfer *), transfers) ||
        ring_init(&e->asked, sizeof(uint32_t), ASKED_MAX) ||
        ring_init(&e->done, sizeof(struct monarch_completion),
                  CLASS_COUNT * ORDERS_MAX))
        return -ENOMEM;
    for (uint32_t i = 0; i < transfers; i++) {
        struct transfer *t = &e->transfers[i];
        ring_push(&e->spare, &t);
    }
    e->throttle.bytes_per_s = e->options.bandwidth_bytes_per_s;
    return 0;
}

/* queue_free - ends what lies parked and releases the queues. */
void queue_free(struct engine *e)
{
    struct transfer *t;
    while (e->parked.items && ring_pop(&e->parked, &t))
        transfer_end(t, -ECANCELED);
    for (int i = 0; i < CLASS_COUNT; i++)
        ring_free(&e->orders[i]);
    ring_free(&e->parked);
    ring_free(&e->spare);
    ring_free(&e->asked);
    ring_free(&e->done);
    free(e->asked_bits);
    free(e->transfers);
}

/* engine_settle - makes event_fd readable exactly while something waits for Python. */
void engine_settle(struct engine *e)
{
    bool waiting = e->asked.count > 0 || e->done.count > 0;
    uint64_t n = 1;
    if (waiting && !e->signalled)
        e->signalled = write(e->event_fd, &n, sizeof(n)) == sizeof(n);
    else if (!waiting && e->signalled)
        e->signalled = read(e->event_fd, &n, sizeof(n)) != sizeof(n);
}

static struct transfer *begin_order(struct engine *e, enum order_class class)
{
    struct monarch_order order;
    struct transfer *t;
    if (!ring_peek(&e->spare) || !ring_pop(&e->orders[class], &order))
        return NULL;
    ring_pop(&e->spare, &t);
    transfer_init(t, &order);
    e->background_begun += class == CLASS_BACKGROUND;
    return t;
}

/* chunk_bytes - how much of the origin the next chunk of a Transfer reads. */
static uint64_t chunk_bytes(const struct transfer *t)
{
    if (transfer_adopts(t))
        return 0;
    uint64_t left = t->begun ? t->size - t->offset : CHUNK_BYTES;
    return left < CHUNK_BYTES ? left : CHUNK_BYTES;
}

static bool background_waits(const struct engine *e)
{
    return e->parked.count > 0 || (e->orders[CLASS_BACKGROUND].count > 0 &&
                                   e->background_begun < e->options.background_max);
}

/* queue_take - the Transfer to run now, or NULL: demand, then background ones that were
 * begun, then new ones. */
struct transfer *queue_take(struct engine *e)
{
    struct transfer *t = begin_order(e, CLASS_DEMAND);
    if (t || !background_waits(e))
        return t;
    uint64_t now = e->throttle.bytes_per_s ? clock_ns() : 0;
    if (now < e->throttle.open_at_ns)
        return NULL;
    if (!ring_pop(&e->parked, &t))
        t = begin_order(e, CLASS_BACKGROUND);
    if (t)
        throttle_charge(&e->throttle, chunk_bytes(t), now);
    return t;
}

/* queue_wait - sleeps until there may be something to take. */
void queue_wait(struct engine *e)
{
    engine_settle(e);
    if (!background_waits(e)) {
        pthread_cond_wait(&e->work, &e->lock);
        return;
    }
    struct timespec until = clock_timespec(e->throttle.open_at_ns);
    pthread_cond_timedwait(&e->work, &e->lock, &until);
}

/* queue_return - takes a Transfer back: ended, or parked behind the others. Programs have
 * been woken already, so Python is told of successes in batches: waking it for each would
 * cost a fifth of the throughput. It hears of them at the latest with the heartbeat. */
void queue_return(struct engine *e, struct transfer *t, bool ended)
{
    enum order_class class = order_class(t->order.kind);
    if (!ended) {
        ring_push(&e->parked, &t);
        return;
    }
    e->background_begun -= class == CLASS_BACKGROUND;
    ring_push(&e->done, &t->completion);
    ring_push(&e->spare, &t);
    if (t->completion.status || e->done.count >= DONE_BATCH)
        engine_settle(e);
}

/* monarch_engine_submit - queues orders of both classes and returns how many it took: it
 * stops at the first whose class has ORDERS_MAX orders that were not yet collected. */
uint32_t monarch_engine_submit(struct engine *e, const struct monarch_order *orders,
                               uint32_t n)
{
    uint32_t taken = 0;
    pthread_mutex_lock(&e->lock);
    for (; taken < n; taken++) {
        enum order_class class = order_class(orders[taken].kind);
        if (e->outstanding[class] == ORDERS_MAX)
            break;
        e->outstanding[class]++;
        ring_push(&e->orders[class], &orders[taken]);
    }
    if (taken == 1)
        pthread_cond_signal(&e->work);
    else if (taken > 1)
        pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    return taken;
}

/* monarch_engine_completions - takes up to `max` orders that have ended. */
uint32_t monarch_engine_completions(struct engine *e, struct monarch_completion *out,
                                    uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (; n < max && ring_pop(&e->done, &out[n]); n++)
        e->outstanding[order_class(out[n].kind)]--;
    engine_settle(e);
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* monarch_engine_requests - takes up to `max` Files that programs ask for. */
uint32_t monarch_engine_requests(struct engine *e, uint32_t *files, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    bool full = e->asked.count == e->asked.capacity;
    for (; n < max && ring_pop(&e->asked, &files[n]); n++)
        e->asked_bits[files[n] / 8] &= (uint8_t) ~(1u << files[n] % 8);
    engine_settle(e);
    pthread_mutex_unlock(&e->lock);
    if (full && n)
        request_ring(e); /* requests were left in their slots */
    return n;
}
