/* deferred_packing.c - Transfers that compress what peers have sent plain, in threads that
 * copy. */
#include <errno.h>

#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/packing.h"

static int begin(struct engine *e, struct transfer *t)
{
    int rc = transfer_prepare(e, t);
    if (!rc && !e->deferred) /* no Tier is packed */
        rc = -EINVAL;
    if (e->deferred)
        t->came = deferred_take(e, &t->order);
    if (rc)
        return rc;
    return t->came ? packing_create(e, t) : -ECANCELED;
}

/* step - compresses the next piece. */
static int step(struct engine *e, struct transfer *t)
{
    uint64_t left = t->size - t->offset;
    size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    const uint8_t *plain = t->came->bytes + frame_least_bytes(t->size);
    if (engine_stopping(e))
        return -ECANCELED;
    if (transfer_written(e, t))
        return -ESTALE;
    t->step = MONARCH_STEP_WRITE;
    int rc = packing_write(e, t, plain + t->offset, n);
    t->offset += rc ? 0 : n;
    return rc;
}

enum { UNFINISHED = 1 };

/* run - 0, -errno or UNFINISHED. */
static int run(struct engine *e, struct transfer *t)
{
    int rc = t->begun ? 0 : begin(e, t);
    while (!rc && t->offset < t->size) {
        rc = step(e, t);
        health_note_step(e, t);
        if (!rc && order_class(t->order.kind) == CLASS_BACKGROUND &&
            t->offset < t->size)
            return UNFINISHED;
    }
    return rc ? rc : packing_publish(e, t);
}

/* deferred_run - continues to compress a File; true when that has ended. Python hears of a
 * failure as of that of a fetch. */
bool deferred_run(struct engine *e, struct transfer *t)
{
    uint64_t began = clock_ns();
    int rc = run(e, t);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED)
        return false;
    if (t->came)
        deferred_done(e, t->came);
    transfer_end(t, rc);
    t->completion.kind &= (uint8_t)~MONARCH_LOCAL;
    return true;
}
