/* traffic.h - what went over the wire with each peer; one thread writes, others read. */
#ifndef MONARCH_TRAFFIC_H
#define MONARCH_TRAFFIC_H

#include <stdatomic.h>

#include "dataplane/monarch.h"

static inline void traffic_add(uint64_t *count, uint64_t n)
{
    atomic_fetch_add_explicit((_Atomic uint64_t *)count, n, memory_order_relaxed);
}

void traffic_copy(const struct monarch_traffic *from, struct monarch_traffic *to,
                  uint32_t peers);

#endif
