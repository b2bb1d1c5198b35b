/* demand.h - what programs and peers ask for, and Files that wait for room in the Pool. */
#ifndef MONARCH_DEMAND_H
#define MONARCH_DEMAND_H

#include "dataplane/api/engine.h"

/* demand.c */
bool demand_wanted(const struct engine *e, uint32_t file);
void demand(struct engine *e, uint32_t file);
void demand_for_peer(struct engine *e, uint32_t file);

/* eviction.c */
int eviction_new(struct engine *e, struct eviction **out);
void eviction_free(struct eviction *v);
int eviction_begin(struct engine *e, uint32_t file, uint32_t kind,
                   struct monarch_order *out);
int eviction_begin_partly(struct engine *e, uint32_t file, struct monarch_order *out);
bool eviction_go_on_packing(struct eviction *v);
void eviction_beat(struct eviction *v);

/* orders.c */
bool order_push(struct engine *e, const struct monarch_order *order);
void start_order(struct engine *e, const struct monarch_order *order);

/* pool_queue.c */
int pool_queue_new(struct engine *e, struct pool_queue **out);
void pool_queue_free(struct pool_queue *q);
void pool_queue_wait(struct pool_queue *q, uint32_t file);
bool pool_queue_serve(struct pool_queue *q);

#endif
