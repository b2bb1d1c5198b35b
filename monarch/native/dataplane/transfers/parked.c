/* parked.c - background Transfers that have yielded to others between two chunks.
 *
 * The oldest continues first; one that a program or a peer waits for continues as demand. The
 * callers hold the lock of the Transfers.
 */
#include "dataplane/transfers/transfers.h"

#include "dataplane/transfers/transfer.h"

/* parked_add - queues a Transfer behind the older ones: where few may run, the same ones continue,
 * and the origin does not read ahead for all of them. */
void parked_add(struct root_queue *q, struct transfer *t)
{
    struct transfer *other, *next = t;
    for (uint32_t n = q->parked.count; n; n--) {
        ring_pop(&q->parked, &other);
        if (next == t && other->turn.age > t->turn.age) {
            ring_push(&q->parked, &next);
            next = NULL;
        }
        ring_push(&q->parked, &other);
    }
    if (next)
        ring_push(&q->parked, &next);
}

/* parked_oldest - returns the root with the oldest parked Transfer, among the roots that may use
 * another thread; NULL: none. */
struct root_queue *parked_oldest(const struct transfers *ts)
{
    struct root_queue *found = NULL;
    uint64_t age = UINT64_MAX;
    for (uint32_t i = 0; i < ts->job->root_count; i++) {
        struct root_queue *q = &ts->roots[i];
        struct transfer *const *first = ring_peek(&q->parked);
        if (!first || q->stalled || (*first)->turn.age >= age ||
            !root_has_thread(ts, q))
            continue;
        age = (*first)->turn.age;
        found = q;
    }
    return found;
}

/* promote - turns a Transfer that fill has begun, and that is awaited now, into demand. */
static void promote(struct transfers *ts, struct root_queue *q, struct transfer *t)
{
    t->order.kind &= (uint8_t)~MONARCH_BACKGROUND;
    q->background_begun--;
    ts->outstanding[CLASS_BACKGROUND]--;
    ts->outstanding[CLASS_DEMAND]++;
}

/* parked_take_awaited - takes the oldest awaited Transfer of a root, as demand; NULL: none. */
struct transfer *parked_take_awaited(struct transfers *ts)
{
    for (uint32_t i = 0; i < ts->job->root_count; i++) {
        struct root_queue *q = &ts->roots[i];
        struct transfer *t, *found = NULL;
        if (q->stalled || !root_has_thread(ts, q) ||
            ts->outstanding[CLASS_DEMAND] == ORDERS_MAX)
            continue;
        for (uint32_t n = q->parked.count; n; n--) {
            ring_pop(&q->parked, &t);
            if (!found && (t->turn.wanted || job_awaits(ts->job, t->order.file)))
                found = t;
            else
                ring_push(&q->parked, &t);
        }
        if (found) {
            promote(ts, q, found);
            return found;
        }
    }
    return NULL;
}
