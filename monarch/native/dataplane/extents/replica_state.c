/* replica_state.c - the states of Files, and the threads that watch them. A small File has the
 * state of its one Extent; Extents of large Files: page_bits.c and page_arrivals.c.
 *
 * Every change of a state word is made here. Programs wait for a state by its futex; a thread that
 * polls sockets cannot. It arms its watch before it sleeps, and then checks the states once more; a
 * thread that stores a state checks for armed watches afterwards. Both steps are sequentially
 * consistent, so that one of the two sees the other.
 */
#include "dataplane/extents/replica_state.h"

#include <limits.h>
#include <stddef.h>

#include "dataplane/base/poller.h"
#include "dataplane/base/syscalls.h"
#include "shared/catalog.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct state_watch *watches;
static atomic_uint armed_count; /* lets most stores pass without the lock */

/* state_watch_add - registers a watch; once armed, a change in this Catalog wakes the
 * poller. */
void state_watch_add(struct state_watch *w, const struct catalog *cat,
                     struct poller *poller)
{
    w->words = replica_word(cat, 0);
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

/* state_watch_remove - removes a watch; after this the poller may be closed. */
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

/* state_watch_arm - requests one wake-up at the next change; false: it was already armed. */
bool state_watch_arm(struct state_watch *w)
{
    if (atomic_exchange(&w->armed, true))
        return false;
    atomic_fetch_add(&armed_count, 1);
    return true;
}

static void wake_watches(const _Atomic uint32_t *words)
{
    if (!atomic_fetch_add(&armed_count, 0)) /* orders the store before this load */
        return;
    pthread_mutex_lock(&lock);
    for (struct state_watch *w = watches; w; w = w->next) {
        if (w->words != words || !atomic_load(&w->armed))
            continue;
        disarm(w);
        poller_wake(w->poller);
    }
    pthread_mutex_unlock(&lock);
}

/* replica_state_wake - wakes all programs and threads that wait for a File. */
void replica_state_wake(_Atomic uint32_t *words, uint32_t file)
{
    futex_wake(&words[file], INT_MAX);
    wake_watches(words);
}

/* replica_watches_wake - wakes the polling threads: Blocks of a large File have arrived or
 * failed. */
void replica_watches_wake(const struct catalog *cat)
{
    wake_watches(replica_word(cat, 0));
}

/* replica_state_change - changes a state word that is still `seen`; a process that reads the new
 * word sees all that was written before it. False: another thread has changed the word, now in
 * `seen`. */
bool replica_state_change(_Atomic uint32_t *words, uint32_t file, uint32_t *seen,
                          uint32_t next, bool wakes)
{
    if (!atomic_compare_exchange_strong_explicit(
            &words[file], seen, next, memory_order_acq_rel, memory_order_acquire))
        return false;
    if (wakes)
        replica_state_wake(words, file);
    return true;
}

/* replica_state_end - ends the staging of one generation, even if programs do not wait for it just
 * now; then the caller calls replica_state_wake(). False: it has already ended. */
bool replica_state_end(_Atomic uint32_t *words, uint32_t file, uint32_t staging,
                       uint32_t fixed)
{
    uint32_t seen = atomic_load_explicit(&words[file], memory_order_acquire);
    while (STATE_OF(seen) == REPLICA_STAGING &&
           (seen & STATE_GENERATION) == (staging & STATE_GENERATION))
        if (replica_state_change(words, file, &seen, (seen & ~STATE_FIXED) | fixed,
                                 false))
            return true;
    return false;
}

/* replica_state_set_busy - stops programs from waiting for a File that is being staged, or lets
 * them wait again. A File that is published at this moment keeps its new state. */
void replica_state_set_busy(const struct catalog *cat, uint32_t file, bool busy)
{
    if (file >= cat->file_count)
        return;
    uint32_t seen = replica_load(cat, file);
    uint32_t from = busy ? REASON_NONE : REASON_BUSY,
             to = busy ? REASON_BUSY : REASON_NONE;
    if (STATE_OF(seen) == REPLICA_STAGING && STATE_REASON(seen) == from)
        replica_state_change(replica_word(cat, 0), file, &seen,
                             STATE_NEXT(seen, REPLICA_STAGING, STATE_TIER(seen), to),
                             busy);
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

/* monarch_state_change - calls replica_state_change(); returns 1, or 0 if the word is not `seen`
 * any more. */
int monarch_state_change(uint32_t *words, uint32_t file, uint32_t seen, uint32_t next,
                         int wakes)
{
    return replica_state_change((_Atomic uint32_t *)words, file, &seen, next, wakes);
}

/* monarch_states_change - sets the state of all Files that match the rule (mask and value of their
 * words), one by one, and wakes no waiter. Returns how many. */
uint64_t monarch_states_change(uint32_t *words, const uint64_t *files, uint64_t n,
                               const struct monarch_rule *rule)
{
    uint64_t changed = 0;
    for (uint64_t i = 0; i < n; i++) {
        _Atomic uint32_t *word = (_Atomic uint32_t *)&words[files[i]];
        uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
        while ((seen & rule->mask) == rule->from)
            if (replica_state_change((_Atomic uint32_t *)words, (uint32_t)files[i],
                                     &seen, (seen & ~STATE_FIXED) | rule->to, false)) {
                changed++;
                break;
            }
    }
    return changed;
}

/* monarch_states_confirm - notes that the attributes of some Files in the Catalog are
 * those of the origin in this job. */
void monarch_states_confirm(uint32_t *words, const uint64_t *files, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        atomic_fetch_or_explicit((_Atomic uint32_t *)&words[files[i]], STATE_CONFIRMED,
                                 memory_order_release);
}
