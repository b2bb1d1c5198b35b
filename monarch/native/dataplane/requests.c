/* requests.c - the thread that listens to programs: heartbeat, and the slots by which they
 * ask for Files. */
#include "dataplane/demand.h"

#include <limits.h>

#include "dataplane/hints.h"
#include "dataplane/syscalls.h"
#include "shared/catalog.h"

/* monarch_agent_state_store - publishes the state of the agent and wakes launchers. */
void monarch_agent_state_store(void *requests, uint32_t state)
{
    _Atomic uint32_t *word =
        (_Atomic uint32_t *)&((struct requests *)requests)->agent_state;
    atomic_store_explicit(word, state, memory_order_release);
    futex_wake(word, INT_MAX);
}

/* monarch_beat - one heartbeat; the engine calls it every HEARTBEAT_MS. */
void monarch_beat(void *requests)
{
    struct requests *r = requests;
    atomic_store_explicit((_Atomic uint64_t *)&r->heartbeat_ns, clock_ns(),
                          memory_order_release);
}

/* collect - empties slots until it has `max` Files; programs write the slots, so any
 * value may be in them. */
static uint32_t collect(struct engine *e, uint32_t *files, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < REQUEST_SLOTS && n < max; i++) {
        _Atomic uint64_t *slot = (_Atomic uint64_t *)&e->requests->slots[i];
        if (!atomic_load_explicit(slot, memory_order_relaxed))
            continue;
        uint64_t number = atomic_exchange_explicit(slot, 0, memory_order_acquire) - 1;
        if (number < e->catalog->file_count && demand_wanted(e, (uint32_t)number))
            files[n++] = (uint32_t)number;
    }
    return n;
}

/* drain - begins what is requested in the slots. Without a table all of it goes to
 * Python, and what its queue has no room for stays in the slots. */
static void drain(struct engine *e)
{
    uint32_t files[REQUEST_SLOTS], room = REQUEST_SLOTS;
    pthread_mutex_lock(&e->lock);
    engine_signal(e);
    if (!e->table)
        room = e->requested.capacity - e->requested.count;
    pthread_mutex_unlock(&e->lock);
    uint32_t n = collect(e, files, room < REQUEST_SLOTS ? room : REQUEST_SLOTS);
    for (uint32_t i = 0; i < n; i++)
        demand(e, files[i]);
}

/* run_each_beat - what is due with each heartbeat, and not with each request: unless an
 * origin does not answer, which programs are to know when it does again. */
static void run_each_beat(struct engine *e)
{
    uint64_t now = clock_ns();
    if (!e->health.stalled && now - e->checked_ns < HEARTBEAT_MS * MS_NS / 2)
        return;
    e->checked_ns = now;
    health_check(e);
    pthread_mutex_lock(&e->lock);
    completions_expire(e, &e->done);
    pthread_mutex_unlock(&e->lock);
}

/* requests_listen - the body of the thread; a lost wake-up costs one heartbeat at
 * most. */
void requests_listen(struct engine *e)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&e->requests->bell;
    const struct timespec slice = clock_timespec(HEARTBEAT_MS * MS_NS),
                          soon = clock_timespec(POOL_MS * MS_NS);
    while (!engine_stopping(e)) {
        uint32_t seen = atomic_load_explicit(bell, memory_order_acquire);
        monarch_beat(e->requests);
        run_each_beat(e);
        drain(e);
        bool waits = e->pool_queue && pool_queue_serve(e->pool_queue);
        waits |= hints_look(e);
        if (!engine_stopping(e))
            syscall(SYS_futex, bell, FUTEX_WAIT, seen, waits ? &soon : &slice, NULL, 0);
    }
}
