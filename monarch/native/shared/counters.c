/* counters.c - process slots of the counters segment, claimed without a lock. */
#include "counters.h"

#include <stdbool.h>
#include <string.h>

static _Atomic uint32_t *state_of(struct process *p)
{
    return (_Atomic uint32_t *)&p->state;
}

/* raise_used - raises the high-water mark of claimed slots. */
static void raise_used(struct counters *all, uint32_t used)
{
    _Atomic uint32_t *mark = (_Atomic uint32_t *)&all->slots_used_max;
    uint32_t old = atomic_load_explicit(mark, memory_order_relaxed);
    while (old < used && !atomic_compare_exchange_weak(mark, &old, used)) {
    }
}

static void fill(struct process *p, uint32_t pid, const char *name)
{
    size_t n = name ? strlen(name) : 0;
    if (n >= PROCESS_NAME_BYTES) { /* the end of a path is the distinctive part */
        name += n - (PROCESS_NAME_BYTES - 1);
        n = PROCESS_NAME_BYTES - 1;
    }
    if (n)
        memcpy(p->name, name, n);
    p->name[n] = 0;
    p->pid = pid;
}

/* process_of - returns the slot that a process has claimed, or NULL. */
struct process *process_of(struct counters *all, uint32_t pid)
{
    uint32_t used = atomic_load_explicit((_Atomic uint32_t *)&all->slots_used_max,
                                         memory_order_acquire);
    for (uint32_t i = 1; i < used && i < PROCESS_SLOTS; i++) {
        struct process *p = &all->process[i];
        if (atomic_load_explicit(state_of(p), memory_order_acquire) > PROCESS_CLAIMED &&
            p->pid == pid)
            return p;
    }
    return NULL;
}

/* process_claim - claims a free slot for a process until the process ends; the agent
 * alone frees it. Processes that find no free slot share slot 0, which has no name. */
struct process *process_claim(struct counters *all, uint32_t pid, uint32_t state,
                              const char *name)
{
    for (uint32_t n = 0; n < PROCESS_SLOTS - 1; n++) {
        uint32_t i = 1 + n;
        struct process *p = &all->process[i];
        uint32_t expected = PROCESS_FREE;
        if (!atomic_compare_exchange_strong(state_of(p), &expected, PROCESS_CLAIMED))
            continue;
        raise_used(all, i + 1);
        fill(p, pid, name);
        atomic_store_explicit(state_of(p), state, memory_order_release);
        return p;
    }
    atomic_fetch_add_explicit((_Atomic uint64_t *)&all->slots_full, 1,
                              memory_order_relaxed);
    return &all->process[0];
}
