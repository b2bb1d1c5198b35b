/* wakeups.c - the words of the requests segment by which programs and the threads of the
 * agent wake each other, and by which programs see that it lives.
 *
 * Threads that copy sleep on a word in the requests segment that says whether one of them
 * is called. Whoever has work sets it, and wakes one of them if nobody else had set it. A
 * thread that is woken or is about to sleep clears it first and looks for work then, in
 * the slots and in the queues: so what was there when it was found set is seen, and there
 * is one thread on its way at a time, however many programs ask. If there is more work
 * than it takes, it calls the next one. Both sides change the word by an exchange, so
 * that one of them sees what the other has stored before.
 */
#include "dataplane/api/engine.h"

#include <limits.h>

#include "dataplane/base/syscalls.h"

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

/* requests_wake - wakes the thread that listens, as programs do. */
void requests_wake(struct engine *e)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&e->requests->bell;
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    futex_wake(bell, 1);
}

static _Atomic uint32_t *called(const struct engine *e)
{
    return (_Atomic uint32_t *)&e->requests->called;
}

/* idle_call - wakes an idle thread, unless one is called that has not looked for work
 * yet. The caller holds the lock of the engine. Where no thread is idle, none would answer,
 * and programs would rely on it. */
void idle_call(struct engine *e)
{
    if (e->idle && !atomic_exchange_explicit(called(e), 1, memory_order_acq_rel))
        futex_wake(called(e), 1);
}

static void call_all(struct engine *e)
{
    atomic_exchange_explicit(called(e), 1, memory_order_acq_rel);
    futex_wake(called(e), INT_MAX);
}

/* idle_call_all - lets all idle threads see what is to be done now; under the lock, too. */
void idle_call_all(struct engine *e)
{
    if (e->idle)
        call_all(e);
}

/* idle_answer - who answers a call looks for work afterwards, in the slots and in the
 * queues: calls are for whoever is first. */
void idle_answer(struct engine *e)
{
    atomic_exchange_explicit(called(e), 0, memory_order_acq_rel);
    if (engine_stopping(e))
        call_all(e); /* all of them are to see it */
}

/* idle_wait - sleeps until there is a call that nobody has answered. */
void idle_wait(struct engine *e, const struct timespec *most)
{
    syscall(SYS_futex, called(e), FUTEX_WAIT, 0, most, NULL, 0);
}
