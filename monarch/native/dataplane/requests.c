/* requests.c - the requests segment: heartbeat, state of the agent, slots by which
 * programs ask for Files, and their way to Python. */
#include "dataplane/engine.h"

#include <limits.h>

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

/* wanted - whether a request for a File in this state goes to Python: the File may be
 * staged, or it is READY and a program could not open its Replica. */
static bool wanted(uint32_t word)
{
    if (STATE_OF(word) == REPLICA_READY)
        return true;
    return STATE_OF(word) == REPLICA_ABSENT && STATE_REASON(word) == REASON_NONE;
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
        if (number < e->catalog->file_count && wanted(replica_load(e->catalog, number)))
            files[n++] = (uint32_t)number;
    }
    return n;
}

/* push_request - queues a File for Python once. */
static void push_request(struct engine *e, uint32_t file)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (e->requested_bits[file / 8] & bit)
        return;
    e->requested_bits[file / 8] |= bit;
    ring_push(&e->requested, &file);
}

/* drain - moves requests from their slots to Python's queue; those that do not fit stay
 * in their slots until Python has collected some. */
static void drain(struct engine *e)
{
    uint32_t files[REQUEST_SLOTS];
    pthread_mutex_lock(&e->lock);
    engine_signal(e);
    uint32_t room = e->requested.capacity - e->requested.count;
    pthread_mutex_unlock(&e->lock);
    uint32_t n = collect(e, files, room < REQUEST_SLOTS ? room : REQUEST_SLOTS);
    if (!n)
        return;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < n; i++)
        push_request(e, files[i]);
    engine_signal(e);
    pthread_mutex_unlock(&e->lock);
}

/* requests_forward - queues a File for Python on behalf of another node; dropped if the
 * queue is full, because the server repeats it. */
void requests_forward(struct engine *e, uint32_t file)
{
    if (!wanted(replica_load(e->catalog, file)))
        return;
    pthread_mutex_lock(&e->lock);
    if (e->requested.count < e->requested.capacity)
        push_request(e, file);
    engine_signal(e);
    pthread_mutex_unlock(&e->lock);
}

/* requests_listen - the body of the thread; a lost wake-up costs one heartbeat at
 * most. */
void requests_listen(struct engine *e)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&e->requests->bell;
    const struct timespec slice = clock_timespec(HEARTBEAT_MS * MS_NS);
    while (!engine_stopping(e)) {
        uint32_t seen = atomic_load_explicit(bell, memory_order_acquire);
        monarch_beat(e->requests);
        drain(e);
        health_check(e);
        if (!engine_stopping(e))
            syscall(SYS_futex, bell, FUTEX_WAIT, seen, &slice, NULL, 0);
    }
}

/* requests_wake - wakes the thread, as programs do. */
void requests_wake(struct engine *e)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&e->requests->bell;
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    futex_wake(bell, 1);
}

/* monarch_engine_requests - collects up to `max` Files that programs or peers wait
 * for. */
uint32_t monarch_engine_requests(struct engine *e, uint32_t *files, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    bool full = e->requested.count == e->requested.capacity;
    for (; n < max && ring_pop(&e->requested, &files[n]); n++)
        e->requested_bits[files[n] / 8] &= (uint8_t) ~(1u << files[n] % 8);
    engine_signal(e);
    pthread_mutex_unlock(&e->lock);
    if (full && n)
        requests_wake(e); /* some requests may still be in their slots */
    return n;
}
