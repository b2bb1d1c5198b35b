/* deferred.c - the queue of Files that fill has fetched plain from peers, for a packed Tier: copy
 * threads compress them.
 *
 * The thread that receives them serves all its peers, so none of its Files may wait for a codec. It
 * collects the plain bytes in a frame, compares them with the seal of the peer, and queues them
 * here. The File stays staging, and its space stays reserved. While BYTES_MAX or more are queued,
 * fill fetches no more. Files that programs wait for go first.
 */
#include "dataplane/transfers/deferred.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/media/frame.h"

enum { BYTES_MAX = 32 << 20 }; /* queued, beside the Files in flight by then */

struct waiting {
    struct waiting *next;
    struct monarch_order order; /* of its fetch */
    struct frame *plain;
    bool pushed; /* the scheduler has its order */
};

struct deferred {
    pthread_mutex_t lock; /* guards the list; taken after that of the Transfers */
    struct waiting *first, **last;
    _Atomic uint64_t bytes;
    _Atomic uint32_t unpushed;
};

/* deferred_new - creates an empty queue. */
int deferred_new(struct deferred **out)
{
    struct deferred *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    pthread_mutex_init(&d->lock, NULL);
    d->last = &d->first;
    *out = d;
    return 0;
}

/* deferred_free - frees the queue and its Files; no thread uses it any more. */
void deferred_free(struct deferred *d)
{
    while (d && d->first) {
        struct waiting *w = d->first;
        d->first = w->next;
        frame_free(&w->plain);
        free(w);
    }
    free(d);
}

/* deferred_add - queues the plain bytes of a received File, instead of publishing it. */
int deferred_add(struct transfers *ts, struct transfer *t)
{
    struct deferred *d = ts->deferred;
    struct waiting *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->order = t->order;
    w->plain = t->frame;
    t->frame = NULL;
    atomic_fetch_add(&d->bytes, w->plain->plain);
    pthread_mutex_lock(&d->lock);
    *d->last = w;
    d->last = &w->next;
    atomic_fetch_add(&d->unpushed, 1);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* deferred_has_pending - a queued File has no order yet. */
bool deferred_has_pending(const struct transfers *ts)
{
    return ts->deferred && atomic_load(&ts->deferred->unpushed);
}

/* deferred_is_behind - so much is queued that fill must not fetch more. */
bool deferred_is_behind(const struct transfers *ts)
{
    return ts->deferred && atomic_load(&ts->deferred->bytes) >= BYTES_MAX;
}

/* next - returns the oldest File without an order, or the oldest that a program waits for. */
static struct waiting *next(const struct transfers *ts, bool awaited)
{
    struct waiting *w = ts->deferred->first;
    while (w && (w->pushed || (awaited && !job_awaits(ts->job, w->order.file))))
        w = w->next;
    return w;
}

/* deferred_next - makes the order to compress the next File, with `awaited` the next one that a
 * program waits for, as demand; false: none. */
bool deferred_next(struct transfers *ts, bool awaited, struct monarch_order *out)
{
    struct deferred *d = ts->deferred;
    if (!deferred_has_pending(ts))
        return false;
    pthread_mutex_lock(&d->lock);
    struct waiting *w = next(ts, awaited);
    if (w) {
        *out = w->order;
        out->kind = MONARCH_LOCAL | (awaited ? 0 : MONARCH_BACKGROUND);
        w->pushed = true;
        atomic_fetch_sub(&d->unpushed, 1);
    }
    pthread_mutex_unlock(&d->lock);
    return w != NULL;
}

/* deferred_take - removes the plain bytes of an order from the queue; NULL: none. */
struct frame *deferred_take(struct transfers *ts, const struct monarch_order *order)
{
    struct deferred *d = ts->deferred;
    struct frame *plain = NULL;
    pthread_mutex_lock(&d->lock);
    struct waiting **at = &d->first;
    while (*at && !((*at)->pushed && (*at)->order.file == order->file &&
                    (*at)->order.word == order->word))
        at = &(*at)->next;
    struct waiting *w = *at;
    if (w) {
        plain = w->plain;
        *at = w->next;
        if (d->last == &w->next)
            d->last = at;
    }
    pthread_mutex_unlock(&d->lock);
    free(w);
    return plain;
}

/* deferred_done - no longer counts the bytes of a File as queued. */
void deferred_done(struct transfers *ts, const struct frame *plain)
{
    atomic_fetch_sub(&ts->deferred->bytes, plain->plain);
}
