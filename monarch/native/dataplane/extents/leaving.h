/* leaving.h - evicted Replicas that programs may still have open. */
#ifndef MONARCH_LEAVING_H
#define MONARCH_LEAVING_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/base/ring.h"

struct job;
struct table;

struct left { /* a Replica without a name */
    int fd;
    uint32_t tier;
    uint64_t ino, room, look_at_ns;
};

struct leaving {
    struct job *job;
    struct table *table;
    struct ring held; /* struct left: those in use */
};

int leaving_new(struct leaving *l, struct job *job, struct table *table);
void leaving_free(struct leaving *l);
bool leaving_is_full(const struct leaving *l);
bool leaving_in_use(int fd);
void leaving_add(struct leaving *l, const struct left *one);
void leaving_poll(struct leaving *l);

#endif
