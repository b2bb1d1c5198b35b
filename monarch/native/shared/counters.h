/* counters.h - process slots and counters in the counters segment. */
#ifndef MONARCH_COUNTERS_H
#define MONARCH_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "layout.h"

/* wait_bucket - returns the bucket of a wait, two per power of two of nanoseconds, from 1 us:
 * bucket b begins at 1024 * 2^(b/2) ns (odd ones at 1.5 times the power below). */
static inline unsigned wait_bucket(uint64_t ns)
{
    if (ns < 1024)
        return 0;
    unsigned log = 63u - (unsigned)__builtin_clzll(ns);
    unsigned half = ns >> (log - 1) & 1;
    unsigned bucket = 2 * (log - 10) + half;
    return bucket < WAIT_BUCKETS ? bucket : WAIT_BUCKETS - 1;
}

static inline void count_add(struct process *p, enum counter c, uint64_t n)
{
    atomic_fetch_add_explicit((_Atomic uint64_t *)&p->counters[c], n,
                              memory_order_relaxed);
}

struct process *process_claim(struct counters *all, uint32_t pid, uint32_t state,
                              const char *name);
struct process *process_of(struct counters *all, uint32_t pid);

#endif
