/* pool.h - the bounded Pool for Files that pass through a node which does not keep
 * them. */
#ifndef MONARCH_POOL_H
#define MONARCH_POOL_H

#include <stdint.h>

struct claims;
struct job;
struct pool;
struct table;

int pool_new(struct job *job, struct table *table, const struct claims *claims,
             struct pool **out);
void pool_free(struct pool *p);
void pool_make_room(struct pool *p, uint64_t need);
void pool_check_held(struct pool *p);
void pool_published(struct pool *p, uint32_t file, uint32_t word);

#endif
