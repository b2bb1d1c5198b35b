/* reports.c - queues for Python: Files that it alone can judge, and failed Transfers. */
#include "dataplane/transfers/transfers.h"

#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"

/* report_file_locked - report_file() for callers that hold the lock. */
void report_file_locked(struct transfers *ts, uint32_t file)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (!(ts->requested_bits[file / 8] & bit) && ring_push(&ts->requested, &file))
        ts->requested_bits[file / 8] |= bit;
    reports_signal(ts);
}

/* report_file - queues a File for Python once; drops it if the queue is full, because programs
 * request it again. */
void report_file(struct transfers *ts, uint32_t file)
{
    pthread_mutex_lock(&ts->lock);
    report_file_locked(ts, file);
    pthread_mutex_unlock(&ts->lock);
}

/* reports_take_files - collects up to `max` Files that programs or peers wait
 * for. */
uint32_t reports_take_files(struct transfers *ts, uint32_t *files, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&ts->lock);
    bool full = ts->requested.count == ts->requested.capacity;
    for (; n < max && ring_pop(&ts->requested, &files[n]); n++)
        ts->requested_bits[files[n] / 8] &= (uint8_t) ~(1u << files[n] % 8);
    reports_signal(ts);
    pthread_mutex_unlock(&ts->lock);
    if (full && n)
        job_ring(ts->job); /* some requests may still be in their slots */
    return n;
}

/* report_completion - queues the completion of a Transfer that failed or must be reported: wakes
 * Python at once if it failed, else in batches, at the latest with the next heartbeat. The caller
 * holds the lock. */
void report_completion(struct transfers *ts, const struct monarch_completion *done)
{
    if (ts->table)
        table_count(ts->table, &(struct monarch_tally){.transfer_ns = done->ns});
    if (!done->status && !order_reported(ts, done->kind)) {
        ts->outstanding[order_class(done->kind)]--;
        return;
    }
    ring_push(&ts->done, done);
    if (done->status || ts->done.count >= DONE_BATCH)
        reports_signal(ts);
}

/* report_tier - reports an error of a packed Tier that fails no Transfer: its File stays where it
 * is, or is read from elsewhere. Dropped if the queue is full: later errors are reported, too. */
void report_tier(struct transfers *ts, const struct transfer *t, uint32_t tier,
                 int status)
{
    const struct monarch_completion done = {.file = t->order.file,
                                            .tier = (uint16_t)tier,
                                            .kind = MONARCH_LOCAL | MONARCH_BACKGROUND,
                                            .step = t->step,
                                            .peer = NO_PEER,
                                            .status = status,
                                            .alone = 1,
                                            .ended_ns = clock_ns()};
    pthread_mutex_lock(&ts->lock);
    if (ts->outstanding[CLASS_BACKGROUND] < ORDERS_MAX) {
        ts->outstanding[CLASS_BACKGROUND]++;
        report_completion(ts, &done);
    }
    pthread_mutex_unlock(&ts->lock);
}

/* completions_expire - makes the Files of failed Transfers absent if Python has not decided in
 * time, so that programs read the origin. Under the lock of `done`. */
void completions_expire(struct transfers *ts, struct ring *done)
{
    uint64_t now = clock_ns();
    for (uint32_t i = 0; ts->table && i < done->count; i++) {
        struct monarch_completion *c = ring_at(done, i);
        if (now - c->ended_ns < PYTHON_SILENT_MS * MS_NS)
            return;
        const struct monarch_order order = {.file = c->file,
                                            .tier = c->tier,
                                            .kind = c->kind,
                                            .peer = c->peer,
                                            .word = c->word};
        if (c->status && !c->expired && !c->alone)
            c->expired = (uint32_t)monarch_table_fail(ts->table, &order, REASON_BUSY,
                                                      1);
    }
}

/* reports_take_completions - collects up to `max` completions. */
uint32_t reports_take_completions(struct transfers *ts, struct monarch_completion *out,
                                  uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&ts->lock);
    for (; n < max && ring_pop(&ts->done, &out[n]); n++)
        ts->outstanding[order_class(out[n].kind)]--;
    reports_signal(ts);
    pthread_mutex_unlock(&ts->lock);
    return n;
}
