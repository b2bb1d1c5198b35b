/* eviction.h - makes room in Tiers for what programs ask for. */
#ifndef MONARCH_EVICTION_H
#define MONARCH_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

struct claims;
struct eviction;
struct job;
struct monarch_order;
struct packs;
struct table;

int eviction_new(struct job *job, struct table *table, struct packs *packs,
                 const struct claims *claims, struct eviction **out);
void eviction_free(struct eviction *v);

/* `v` is NULL where no Tier evicts. */
int eviction_begin(struct eviction *v, struct table *t, uint32_t file, uint32_t kind,
                   struct monarch_order *out);
int eviction_begin_partly(struct eviction *v, struct table *t, uint32_t file,
                          struct monarch_order *out);

bool eviction_go_on_packing(struct eviction *v);
void eviction_beat(struct eviction *v);

#endif
