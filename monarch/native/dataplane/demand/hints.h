/* hints.h - reads ahead the Files that programs announce by hints. */
#ifndef MONARCH_HINTS_H
#define MONARCH_HINTS_H

#include "dataplane/demand/demand.h"
#include "dataplane/extents/hint_claims.h"

struct hint_order { /* of one program */
    uint64_t program;
    uint32_t *files;
    uint64_t count, next;
    uint64_t blocked_ns; /* since when its next File has had no room; 0: not so */
};

struct hints {
    atomic_bool wanted;   /* some File can perhaps be begun */
    pthread_mutex_t lock; /* guards the rest; before that of the queue of the Pool */
    struct hint_order orders[HINT_ORDERS_MAX];
    uint32_t order_count, turn;
    uint16_t *pending; /* per File: hints that are not looked at */
    struct claims claims;
    uint64_t moved_ns;  /* when programs have last opened what was read ahead */
    uint64_t looked_ns; /* when the Pool was tried again last */
};

/* hints_wanted - the threads should look at the hints before they fill. */
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
