/* replica_state.h - tells threads of the data plane that the state of some File has changed. */
#ifndef MONARCH_WATCH_H
#define MONARCH_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/poller.h"

struct watch {
    struct watch *next;
    const void *catalog;
    struct loop *loop;
    atomic_bool armed;
};

void watch_add(struct watch *w, const void *catalog, struct loop *loop);
void watch_remove(struct watch *w);
bool watch_arm(struct watch *w);
void watch_tell(const void *catalog);

#endif
