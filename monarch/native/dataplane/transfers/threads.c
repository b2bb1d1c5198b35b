/* threads.c - starts the threads of an engine: as many as fill and a few programs need at first,
 * and more when programs would wait for one; and wakes those that copy.
 *
 * Threads that copy sleep on a word in the requests segment that is set while one of them is
 * called. A thread with new work sets it, and wakes one of them if it was not set. A thread that
 * wakes, or is about to sleep, first clears it and then looks for work in the slots and queues. So
 * it sees all work that was stored when the word was found set, and only one thread is on its way
 * at a time, however many programs request. If work is left, it calls the next one. Both sides
 * change the word by an exchange, so that one of them sees what the other has stored before.
 */
#include "dataplane/transfers/transfers.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>

#include "dataplane/base/syscalls.h"

/* name_thread - names a thread for ps -T and debuggers. */
static void name_thread(pthread_t thread, uint32_t number)
{
    char name[16] = "requests";
    if (number)
        snprintf(name, sizeof(name), "copy %u", number % 1000);
    pthread_setname_np(thread, name);
}

/* start_one - starts a thread, with all signals blocked: Python's main thread receives them. */
static int start_one(struct transfers *ts)
{
    uint32_t number = ts->started;
    struct worker *w = &ts->workers[number];
    sigset_t all, before;
    w->engine = ts->engine;
    w->copies = number > 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, ts->thread_body, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return -rc;
    name_thread(w->thread, number);
    ts->started++;
    ts->running++;
    return 0;
}

/* threads_start - starts the missing threads. A lower limit of background Transfers needs fewer;
 * with several roots, each needs its share. */
int threads_start(struct transfers *ts)
{
    uint32_t kept = ts->options.threads - ts->options.background_max;
    uint32_t wanted = 1 + ts->background_limit;
    wanted += kept < DEMAND_THREADS ? kept : DEMAND_THREADS;
    if (ts->job->root_count > 1)
        wanted = 1 + ts->options.threads;
    int rc = 0;
    while (!rc && ts->started < wanted)
        rc = start_one(ts);
    return rc;
}

/* lacks_threads - more demand is queued than threads are idle. */
static bool lacks_threads(const struct transfers *ts)
{
    uint32_t queued = 0;
    for (uint32_t i = 0; i < ts->job->root_count; i++)
        if (root_has_thread(ts, &ts->roots[i]))
            queued += ts->roots[i].orders[CLASS_DEMAND].count;
    return queued > ts->idle;
}

/* threads_for_demand - starts a thread if programs would wait for one: all others may be in long
 * reads. If that fails, demand waits for the first read that ends. */
void threads_for_demand(struct transfers *ts)
{
    if (ts->started <= ts->options.threads && !job_stopping(ts->job) &&
        lacks_threads(ts))
        start_one(ts);
}

/* ---- calls ------------------------------------------------------------------------- */

static _Atomic uint32_t *called(const struct transfers *ts)
{
    return (_Atomic uint32_t *)&ts->job->requests->called;
}

/* idle_call - wakes an idle thread, unless one is called that has not looked for work yet. The
 * caller holds the lock of the Transfers. While no thread is idle, the word stays clear: none would
 * answer, and programs would rely on it. */
void idle_call(struct transfers *ts)
{
    if (ts->idle && !atomic_exchange_explicit(called(ts), 1, memory_order_acq_rel))
        futex_wake(called(ts), 1);
}

static void call_all(struct transfers *ts)
{
    atomic_exchange_explicit(called(ts), 1, memory_order_acq_rel);
    futex_wake(called(ts), INT_MAX);
}

/* idle_call_all - wakes all idle threads to look for work; under the lock, too. */
void idle_call_all(struct transfers *ts)
{
    if (ts->idle)
        call_all(ts);
}

/* idle_answer - answers a call; the caller then looks for work in the slots and in the queues: only
 * the first thread that answers serves the call. */
void idle_answer(struct transfers *ts)
{
    atomic_exchange_explicit(called(ts), 0, memory_order_acq_rel);
    if (job_stopping(ts->job))
        call_all(ts); /* all threads must see it */
}

/* idle_wait - sleeps until a call is unanswered, at most for `most`. */
void idle_wait(struct transfers *ts, const struct timespec *most)
{
    syscall(SYS_futex, called(ts), FUTEX_WAIT, 0, most, NULL, 0);
}
