/* hints.h - reads ahead the Files that programs announce by hints. */
#ifndef MONARCH_HINTS_H
#define MONARCH_HINTS_H

#include "dataplane/demand/demand.h"
#include "dataplane/extents/hint_claims.h"

struct hint_order { /* of one program */
    uint64_t program;
    uint32_t *files;
    uint64_t count, next;
    uint64_t blocked_ns; /* since when its next File does not fit; 0: it does */
};

struct hints {
    atomic_bool wanted;   /* a File can perhaps be begun */
    pthread_mutex_t lock; /* guards the rest; before that of the queue of the Pool */
    struct hint_order orders[HINT_ORDERS_MAX];
    uint32_t order_count, turn;
    uint16_t *pending; /* per File: hints not handled yet */
    struct claims claims;
    uint64_t moved_ns;  /* when programs last opened a prefetched File */
    uint64_t looked_ns; /* when the Pool was last retried */
};

/* hints_wanted - the threads should handle hints before they fill. */
static inline bool hints_wanted(const struct demand *d)
{
    return d->hints && atomic_load_explicit(&d->hints->wanted, memory_order_relaxed);
}

int hints_new(struct demand *d, struct hints **out);
void hints_free(struct hints *h);
int hints_set(struct demand *d, uint64_t program, const uint32_t *files, uint64_t n);
void hints_report(struct demand *d, struct monarch_hint_tally *out);
void hints_begin(struct demand *d);
bool hints_poll(struct demand *d);

#endif
