/* process.h - this process in the counters segment, across fork, vfork and exec. */
#ifndef MONARCH_PROCESS_H
#define MONARCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "shared/counters.h"

struct life { /* lives in a page that the kernel wipes in a fork child */
    struct process *_Atomic slot;
    uint32_t pid;
    bool watched; /* the kernel cannot wipe: compare process ids instead */
};

extern struct life *process_life;

bool process_prepare(uint64_t pids, bool served);
void process_begin(struct counters *all);
bool process_borrowed(void);
const char *process_exe(void);
bool process_changed(void);
void process_state(struct process *p, enum process_state state);
void process_resume(struct process *p);

/* process_enter - takes a slot if this process has none of its own; returns whether it did. */
static inline bool process_enter(struct counters *all)
{
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    if (__builtin_expect(slot && !process_life->watched, 1) || !process_changed())
        return false;
    process_begin(all);
    return true;
}

/* counted - returns a counter of this process; threads may see it late. */
static inline uint64_t counted(enum counter c)
{
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    return slot ? atomic_load_explicit((_Atomic uint64_t *)&slot->counters[c],
                                       memory_order_relaxed)
                : 0;
}

static inline void count(enum counter c, uint64_t n)
{
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    if (__builtin_expect(slot != NULL, 1))
        count_add(slot, c, n);
}

#endif
