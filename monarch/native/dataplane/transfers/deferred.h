/* deferred.h - Files that have come plain from peers, and are to be compressed. */
#ifndef MONARCH_DEFERRED_H
#define MONARCH_DEFERRED_H

#include "dataplane/transfers/transfer.h"

struct deferred;

/* deferred.c */
int deferred_new(struct deferred **out);
void deferred_free(struct deferred *d);

int deferred_add(struct engine *e, struct transfer *t);
bool deferred_waits(const struct engine *e);
bool deferred_is_behind(const struct engine *e);
bool deferred_next(struct engine *e, bool awaited, struct monarch_order *out);
struct frame *deferred_take(struct engine *e, const struct monarch_order *order);
void deferred_done(struct engine *e, const struct frame *plain);

/* deferred_packing.c */
bool deferred_run(struct engine *e, struct transfer *t);

/* transfer_defers - it compresses what a peer has sent plain. */
static inline bool transfer_defers(const struct transfer *t)
{
    return transfer_repacks(t) && t->order.peer != NO_PEER;
}

#endif
