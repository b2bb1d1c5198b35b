/* requests.c - the thread that beats the heart and takes requests out of their slots. */
#include "dataplane/request.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/engine.h"
#include "dataplane/health.h"
#include "shared/catalog.h"

/* wanted - whether a state leaves anything to do for who asks: Files that may be staged,
 * and READY ones, whose Replica a program could not open. */
static bool wanted(uint32_t word)
{
    if (STATE_OF(word) == REPLICA_READY)
        return true;
    return STATE_OF(word) == REPLICA_ABSENT && STATE_REASON(word) == REASON_NONE;
}

/* collect - empties slots until `max` Files are found; programs write the slots, so any
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

static void forward(struct engine *e, uint32_t file)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (e->asked_bits[file / 8] & bit)
        return;
    e->asked_bits[file / 8] |= bit;
    ring_push(&e->asked, &file);
}

/* drain - moves requests on; what finds no room stays in its slot until Python has
 * taken some. */
static void drain(struct engine *e)
{
    uint32_t files[REQUEST_SLOTS];
    pthread_mutex_lock(&e->lock);
    engine_settle(e);
    uint32_t room = e->asked.capacity - e->asked.count;
    pthread_mutex_unlock(&e->lock);
    uint32_t n = collect(e, files, room < REQUEST_SLOTS ? room : REQUEST_SLOTS);
    if (!n)
        return;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < n; i++)
        forward(e, files[i]);
    engine_settle(e);
    pthread_mutex_unlock(&e->lock);
}

/* request_forward - asks Python for a File on behalf of another node; dropped where Python
 * is late, for who waits asks again. */
void request_forward(struct engine *e, uint32_t file)
{
    if (!wanted(replica_load(e->catalog, file)))
        return;
    pthread_mutex_lock(&e->lock);
    if (e->asked.count < e->asked.capacity)
        forward(e, file);
    engine_settle(e);
    pthread_mutex_unlock(&e->lock);
}

/* request_listen - what the thread does; a bell that is lost costs one heartbeat at most. */
void request_listen(struct engine *e)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&e->requests->bell;
    const struct timespec slice = clock_timespec(HEARTBEAT_MS * (SECOND_NS / 1000));
    while (!engine_stops(e)) {
        uint32_t seen = atomic_load_explicit(bell, memory_order_acquire);
        monarch_beat(e->requests);
        drain(e);
        health_watch(e);
        if (!engine_stops(e))
            syscall(SYS_futex, bell, FUTEX_WAIT, seen, &slice, NULL, 0);
    }
}

/* request_ring - wakes the thread, as programs do. */
void request_ring(struct engine *e)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&e->requests->bell;
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
