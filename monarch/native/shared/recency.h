/* recency.h - the last use of each File, in ticks of a coarse clock of the agent, which advances
 * with each heartbeat and with each File that room is made for. It is stored only if a Tier needs
 * it. */
#ifndef MONARCH_RECENCY_H
#define MONARCH_RECENCY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

static inline uint32_t recency_tick(const struct flags *f)
{
    return atomic_load_explicit((const _Atomic uint32_t *)&f->tick,
                                memory_order_relaxed);
}

static inline _Atomic uint32_t *recency_of(const struct flags *f, uint64_t file)
{
    return (_Atomic uint32_t *)((uint8_t *)(uintptr_t)f + f->recency) + file;
}

/* recency_note - stores that a File is used now. Within a tick only the first use writes, so that
 * programs that share Files do not contend for the cache line. */
static inline void recency_note(const struct flags *f, uint64_t file)
{
    if (__builtin_expect(f->recency == 0, 1) ||
        f->recency + 4 * (file + 1) > f->seg.length)
        return;
    _Atomic uint32_t *at = recency_of(f, file);
    uint32_t tick = recency_tick(f);
    if (atomic_load_explicit(at, memory_order_relaxed) != tick)
        atomic_store_explicit(at, tick, memory_order_relaxed);
}

#endif
