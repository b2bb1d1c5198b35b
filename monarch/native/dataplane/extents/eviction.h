/* eviction.h - evicts Replicas from Tiers, and from the bounded Pool of Files that pass through a
 * node which does not keep them. */
#ifndef MONARCH_EVICTION_H
#define MONARCH_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

struct claims;
struct eviction;
struct job;
struct monarch_order;
struct packs;
struct pool;
struct table;

/* eviction.c */
int eviction_new(struct job *job, struct table *table, struct packs *packs,
                 const struct claims *claims, struct eviction **out);
void eviction_free(struct eviction *v);

/* `v` is NULL if no Tier evicts. */
int eviction_begin(struct eviction *v, struct table *t, uint32_t file, uint32_t kind,
                   struct monarch_order *out);
int eviction_begin_partly(struct eviction *v, struct table *t, uint32_t file,
                          struct monarch_order *out);

bool eviction_resume_packing(struct eviction *v);
void eviction_beat(struct eviction *v);

/* pool.c */
int pool_new(struct job *job, struct table *table, const struct claims *claims,
             struct pool **out);
void pool_free(struct pool *p);
void pool_make_room(struct pool *p, uint64_t need);
void pool_check_held(struct pool *p);
void pool_published(struct pool *p, uint32_t file, uint32_t word);

#endif
