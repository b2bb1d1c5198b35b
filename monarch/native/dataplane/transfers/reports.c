/* reports.c - what Python is told: Files that it alone can judge, and Transfers that have
 * failed. */
#include "dataplane/api/engine.h"

#include "dataplane/extents/staging_table.h"
#include "dataplane/transfers/transfer.h"

/* report_file_locked - the same for those that hold the lock. */
void report_file_locked(struct engine *e, uint32_t file)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (!(e->requested_bits[file / 8] & bit) && ring_push(&e->requested, &file))
        e->requested_bits[file / 8] |= bit;
    engine_signal(e);
}

/* report_file - queues a File for Python once; dropped if the queue is full, because
 * who asks asks again. */
void report_file(struct engine *e, uint32_t file)
{
    pthread_mutex_lock(&e->lock);
    report_file_locked(e, file);
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_requests - collects up to `max` Files that programs or peers wait
 * for. */
uint32_t monarch_engine_requests(struct engine *e, uint32_t *files, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    bool full = e->requested.count == e->requested.capacity;
    for (; n < max && ring_pop(&e->requested, &files[n]); n++)
        e->requested_bits[files[n] / 8] &= (uint8_t) ~(1u << files[n] % 8);
    engine_signal(e);
    pthread_mutex_unlock(&e->lock);
    if (full && n)
        requests_wake(e); /* some requests may still be in their slots */
    return n;
}

/* report_completion - queues the completion of a Transfer for Python, if that is to have
 * it: at once if it has failed, else in batches, at the latest with the next heartbeat.
 * The caller holds the lock. */
void report_completion(struct engine *e, const struct monarch_completion *done)
{
    if (e->table)
        table_count(e->table, done->ns);
    if (!done->status && !order_reported(e, done->kind)) {
        e->outstanding[order_class(done->kind)]--;
        return;
    }
    ring_push(&e->done, done);
    if (done->status || e->done.count >= DONE_BATCH)
        engine_signal(e);
}

/* report_tier - tells Python of an error of a packed Tier by which no Transfer fails: its File
 * stays where it is, or comes from elsewhere. Dropped if too much is not collected, as the
 * next error is told as well. */
void report_tier(struct engine *e, const struct transfer *t, uint32_t tier, int status)
{
    const struct monarch_completion done = {.file = t->order.file,
                                            .tier = (uint16_t)tier,
                                            .kind = MONARCH_LOCAL | MONARCH_BACKGROUND,
                                            .step = t->step,
                                            .peer = NO_PEER,
                                            .status = status,
                                            .alone = 1,
                                            .ended_ns = clock_ns()};
    pthread_mutex_lock(&e->lock);
    if (e->outstanding[CLASS_BACKGROUND] < ORDERS_MAX) {
        e->outstanding[CLASS_BACKGROUND]++;
        report_completion(e, &done);
    }
    pthread_mutex_unlock(&e->lock);
}

/* completions_expire - makes the Files of failed Transfers absent for which Python has
 * decided nothing in time, so that programs read the origin. Under the lock of `done`. */
void completions_expire(struct engine *e, struct ring *done)
{
    uint64_t now = clock_ns();
    for (uint32_t i = 0; e->table && i < done->count; i++) {
        struct monarch_completion *c = ring_at(done, i);
        if (now - c->ended_ns < PYTHON_SILENT_MS * MS_NS)
            return;
        const struct monarch_order order = {.file = c->file,
                                            .tier = c->tier,
                                            .kind = c->kind,
                                            .peer = c->peer,
                                            .word = c->word};
        if (c->status && !c->expired && !c->alone)
            c->expired = (uint32_t)monarch_table_fail(e->table, &order, REASON_BUSY, 1);
    }
}

/* monarch_engine_completions - collects up to `max` orders that have ended. */
uint32_t monarch_engine_completions(struct engine *e, struct monarch_completion *out,
                                    uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (; n < max && ring_pop(&e->done, &out[n]); n++)
        e->outstanding[order_class(out[n].kind)]--;
    engine_signal(e);
    pthread_mutex_unlock(&e->lock);
    return n;
}
