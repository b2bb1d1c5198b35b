/* requests.c - the slots in which programs request Files, the threads that read them, and the
 * heartbeat.
 *
 * Threads that copy check the slots whenever they are idle, so that the thread that a program wakes
 * is the one that copies for it. The thread that waits for requests checks them only when no copy
 * thread is idle; it never copies, so that no origin can stop it.
 */
#include "dataplane/demand/demand.h"

#include "dataplane/base/syscalls.h"
#include "dataplane/demand/hints.h"
#include "dataplane/extents/eviction.h"
#include "dataplane/extents/partial.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"

/* collect - empties slots until it has `max` requests; programs write the slots, so any
 * value may be in them. */
static uint32_t collect(struct demand *d, uint64_t *requests, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < REQUEST_SLOTS && n < max; i++) {
        _Atomic uint64_t *slot = (_Atomic uint64_t *)&d->job->requests->slots[i];
        if (!atomic_load_explicit(slot, memory_order_relaxed))
            continue;
        uint64_t request = atomic_exchange_explicit(slot, 0, memory_order_acquire);
        if (request & REQUEST_PAGES || (request - 1 < d->job->catalog->file_count &&
                                        demand_wanted(d, (uint32_t)(request - 1))))
            requests[n++] = request;
    }
    return n;
}

/* report_slots - reports the requests in the slots to Python; those for which its queue has no
 * space stay there. */
static void report_slots(struct demand *d)
{
    uint64_t requests[REQUEST_SLOTS];
    pthread_mutex_lock(&d->transfers->lock);
    uint32_t room = d->transfers->requested.capacity - d->transfers->requested.count;
    uint32_t n = collect(d, requests, room < REQUEST_SLOTS ? room : REQUEST_SLOTS);
    for (uint32_t i = 0; i < n; i++)
        if (!(requests[i] & REQUEST_PAGES))
            report_file_locked(d->transfers, (uint32_t)(requests[i] - 1));
    pthread_mutex_unlock(&d->transfers->lock);
}

/* requests_poll - begins the requests in the slots, by the table or by Python. Any thread may call
 * it. */
void requests_poll(struct demand *d)
{
    uint64_t requests[REQUEST_SLOTS];
    if (!d->table) {
        report_slots(d);
        return;
    }
    uint32_t n = collect(d, requests, REQUEST_SLOTS);
    if (n)
        health_check_stalled(d->transfers);
    for (uint32_t i = 0; i < n; i++)
        if (requests[i] & REQUEST_PAGES)
            pages_requested(d, presence_range(requests[i]), false);
        else
            demand(d, (uint32_t)(requests[i] - 1));
}

/* tell_alone - shows programs whether small reads may bypass the agent. */
static void tell_alone(const struct demand *d)
{
    bool alone = d->transfers->options.alone && !d->transfers->options.readers_max;
    atomic_store_explicit((_Atomic uint32_t *)&d->job->requests->alone, alone,
                          memory_order_relaxed);
}

/* run_each_beat - runs the work of each heartbeat, which is not needed for each request. */
static void run_each_beat(struct demand *d)
{
    uint64_t now = clock_ns();
    if (now - d->checked_ns < HEARTBEAT_MS * MS_NS / 2)
        return;
    d->checked_ns = now;
    health_check(d->transfers);
    tell_alone(d);
    pages_check(d);
    fill_call(d);
    packing_resume(d->transfers); /* a failed frame has released its reservation */
    if (d->eviction)
        eviction_beat(d->eviction);
    pthread_mutex_lock(&d->transfers->lock);
    completions_expire(d->transfers, &d->transfers->done);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* answer - handles the call of a program that no copy thread has answered: none is idle, or the
 * program was killed before it woke one. */
static void answer(struct demand *d)
{
    idle_answer(d->transfers);
    requests_poll(d);
    pthread_mutex_lock(&d->transfers->lock);
    scheduler_call(d->transfers);
    reports_signal(d->transfers);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* requests_listen - runs the thread that waits; a lost wake-up costs at most one heartbeat. */
void requests_listen(struct demand *d)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&d->job->requests->bell;
    const struct timespec slice = clock_timespec(HEARTBEAT_MS * MS_NS),
                          soon = clock_timespec(POOL_MS * MS_NS);
    while (!job_stopping(d->job)) {
        uint32_t seen = atomic_load_explicit(bell, memory_order_acquire);
        monarch_beat(d->job->requests);
        run_each_beat(d);
        pages_resume(d);
        answer(d);
        bool waits = d->pool_queue && pool_queue_serve(d->pool_queue);
        waits |= hints_poll(d);
        if (!job_stopping(d->job))
            syscall(SYS_futex, bell, FUTEX_WAIT, seen, waits ? &soon : &slice, NULL, 0);
    }
}
