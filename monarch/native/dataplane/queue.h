/* queue.h - what waits, what runs next, what has ended; callers hold the engine's lock. */
#ifndef MONARCH_QUEUE_H
#define MONARCH_QUEUE_H

#include <stdbool.h>

#include "dataplane/engine.h"

struct waiting { /* an order that nobody has begun */
    struct monarch_order order;
    uint64_t age;
};

int queue_init(struct engine *e);
void queue_free(struct engine *e);
struct transfer *queue_take(struct engine *e);
void queue_wait(struct engine *e);
void queue_return(struct engine *e, struct transfer *t, bool ended);

#endif
