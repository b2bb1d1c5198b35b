/* threads.c - how many threads an engine has: those that fill and a few programs need at
 * first, and more where programs would wait for one. */
#include "dataplane/api/engine.h"

#include <signal.h>
#include <stdio.h>

/* name_thread - shows in ps -T and in a debugger what a thread is for. */
static void name_thread(pthread_t thread, uint32_t number)
{
    char name[16] = "requests";
    if (number)
        snprintf(name, sizeof(name), "copy %u", number % 1000);
    pthread_setname_np(thread, name);
}

/* start_one - with all signals blocked: Python's main thread receives them. */
static int start_one(struct engine *e)
{
    uint32_t number = e->started;
    struct worker *w = &e->workers[number];
    sigset_t all, before;
    w->engine = e;
    w->copies = number > 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, e->thread_body, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return -rc;
    name_thread(w->thread, number);
    e->started++;
    e->running++;
    return 0;
}

/* threads_start - starts the threads that are needed and do not run yet. A lower limit of
 * background Transfers needs fewer; but several roots need the share of each. */
int threads_start(struct engine *e)
{
    uint32_t kept = e->options.threads - e->options.background_max;
    uint32_t wanted = 1 + e->background_limit;
    wanted += kept < DEMAND_THREADS ? kept : DEMAND_THREADS;
    if (e->root_count > 1)
        wanted = 1 + e->options.threads;
    int rc = 0;
    while (!rc && e->started < wanted)
        rc = start_one(e);
    return rc;
}

/* lacks_threads - demand is queued for which no thread is idle. */
static bool lacks_threads(const struct engine *e)
{
    uint32_t queued = 0;
    for (uint32_t i = 0; i < e->root_count; i++)
        if (root_has_thread(e, &e->roots[i]))
            queued += e->roots[i].orders[CLASS_DEMAND].count;
    return queued > e->idle;
}

/* threads_for_demand - starts a thread if programs would wait for one: those that there are
 * may all be in reads that take long. Without it, demand waits for the first that ends. */
void threads_for_demand(struct engine *e)
{
    if (e->started <= e->options.threads && !engine_stopping(e) && lacks_threads(e))
        start_one(e);
}
