/* deferred_packing.c - Transfers that compress what peers have sent plain, in threads that
 * copy. */
#include <errno.h>

#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/packing.h"

static int begin(struct transfers *ts, struct transfer *t)
{
    int rc = transfer_prepare(ts, t);
    if (!rc && !ts->deferred) /* no Tier is packed */
        rc = -EINVAL;
    if (ts->deferred)
        t->came = deferred_take(ts, &t->order);
    if (rc)
        return rc;
    return t->came ? packing_create(t) : -ECANCELED;
}

/* step - compresses the next piece. */
static int step(struct transfers *ts, struct transfer *t)
{
    uint64_t left = t->original.size - t->offset;
    size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    const uint8_t *plain = t->came->bytes + frame_least_bytes(t->original.size);
    if (job_stopping(ts->job))
        return -ECANCELED;
    if (transfer_written(ts, t))
        return -ESTALE;
    t->step = MONARCH_STEP_WRITE;
    int rc = packing_write(ts, t, plain + t->offset, n);
    t->offset += rc ? 0 : n;
    return rc;
}

enum { UNFINISHED = 1 };

/* run - 0, -errno or UNFINISHED. */
static int run(struct transfers *ts, struct transfer *t)
{
    int rc = t->begun ? 0 : begin(ts, t);
    while (!rc && t->offset < t->original.size) {
        rc = step(ts, t);
        health_note_step(ts, t);
        if (!rc && order_class(t->order.kind) == CLASS_BACKGROUND &&
            t->offset < t->original.size)
            return UNFINISHED;
    }
    return rc ? rc : packing_publish(ts, t);
}

/* deferred_run - continues to compress a File; true when that has ended. Python hears of a
 * failure as of that of a fetch. */
bool deferred_run(struct transfers *ts, struct transfer *t)
{
    uint64_t began = clock_ns();
    int rc = run(ts, t);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED)
        return false;
    if (t->came)
        deferred_done(ts, t->came);
    transfer_end(t, rc);
    t->completion.kind &= (uint8_t)~MONARCH_LOCAL;
    return true;
}
