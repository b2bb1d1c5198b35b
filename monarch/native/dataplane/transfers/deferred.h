/* deferred.h - the queue of Files received uncompressed from peers, to be compressed. */
#ifndef MONARCH_DEFERRED_H
#define MONARCH_DEFERRED_H

#include "dataplane/transfers/transfer.h"

struct deferred;

/* deferred.c */
int deferred_new(struct deferred **out);
void deferred_free(struct deferred *d);

int deferred_add(struct transfers *ts, struct transfer *t);
bool deferred_has_pending(const struct transfers *ts);
bool deferred_is_behind(const struct transfers *ts);
bool deferred_next(struct transfers *ts, bool awaited, struct monarch_order *out);
struct frame *deferred_take(struct transfers *ts, const struct monarch_order *order);
void deferred_done(struct transfers *ts, const struct frame *plain);

#endif
