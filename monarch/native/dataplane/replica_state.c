/* replica_state.c - the state words of Files, and the threads that watch them.
 *
 * Every change of a state word is made here. Programs wait for a state by its futex; a
 * thread that polls sockets cannot. Before it sleeps it arms its watch and looks at the
 * states once more; a thread that stores a state looks for armed watches afterwards.
 * Both steps are sequentially consistent, so that one of the two sees the other.
 */
#include "dataplane/replica_state.h"

#include <limits.h>
#include <stddef.h>

#include "dataplane/api.h"
#include "dataplane/poller.h"
#include "dataplane/syscalls.h"
#include "shared/catalog.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct state_watch *watches;
static atomic_uint armed_count; /* lets most stores pass without the lock */

/* state_watch_add - registers a watch; once armed, a change in this Catalog wakes the
 * poller. */
void state_watch_add(struct state_watch *w, const struct catalog *cat,
                     struct poller *poller)
{
    w->catalog = cat;
    w->poller = poller;
    pthread_mutex_lock(&lock);
    w->next = watches;
    watches = w;
    pthread_mutex_unlock(&lock);
}

static void disarm(struct state_watch *w)
{
    if (atomic_exchange(&w->armed, false))
        atomic_fetch_sub(&armed_count, 1);
}

/* state_watch_remove - after this the poller may be closed. */
void state_watch_remove(struct state_watch *w)
{
    struct state_watch **at = &watches;
    pthread_mutex_lock(&lock);
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
    disarm(w);
    pthread_mutex_unlock(&lock);
}

/* state_watch_arm - asks for one wake-up at the next change; false: it was armed
 * already. */
bool state_watch_arm(struct state_watch *w)
{
    if (atomic_exchange(&w->armed, true))
        return false;
    atomic_fetch_add(&armed_count, 1);
    return true;
}

static void wake_watches(const struct catalog *cat)
{
    if (!atomic_fetch_add(&armed_count, 0)) /* orders the store before this load */
        return;
    pthread_mutex_lock(&lock);
    for (struct state_watch *w = watches; w; w = w->next) {
        if (w->catalog != cat || !atomic_load(&w->armed))
            continue;
        disarm(w);
        poller_wake(w->poller);
    }
    pthread_mutex_unlock(&lock);
}

/* replica_state_store - publishes the state of a File: a process that reads the word
 * sees all that was written before it. Wakes all programs and threads that wait for
 * it. */
void replica_state_store(const struct catalog *cat, uint32_t file, uint32_t word)
{
    _Atomic uint32_t *at = replica_word(cat, file);
    atomic_store_explicit(at, word, memory_order_release);
    futex_wake(at, INT_MAX);
    wake_watches(cat);
}

/* replica_state_set_busy - tells programs not to wait for a File that is being staged,
 * or to wait again. A File that is published at this moment keeps its new state. */
void replica_state_set_busy(const struct catalog *cat, uint32_t file, bool busy)
{
    if (file >= cat->file_count)
        return;
    _Atomic uint32_t *word = replica_word(cat, file);
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t from = busy ? REASON_NONE : REASON_BUSY,
             to = busy ? REASON_BUSY : REASON_NONE;
    if (STATE_OF(seen) != REPLICA_STAGING || STATE_REASON(seen) != from)
        return;
    uint32_t next = STATE_WORD(REPLICA_STAGING, STATE_TIER(seen), to);
    if (atomic_compare_exchange_strong(word, &seen, next) && busy)
        futex_wake(word, INT_MAX);
}

/* monarch_marks_set - adds bits to the marks of some Files, directories or roots, while
 * programs add theirs. */
void monarch_marks_set(uint8_t *marks, const uint64_t *numbers, const uint8_t *bits,
                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        atomic_fetch_or_explicit((_Atomic uint8_t *)&marks[numbers[i]], bits[i],
                                 memory_order_release);
}

/* monarch_state_store - see replica_state_store(). */
void monarch_state_store(void *catalog, uint32_t file, uint32_t word)
{
    replica_state_store(catalog, file, word);
}
