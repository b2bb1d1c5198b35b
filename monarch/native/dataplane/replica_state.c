/* replica_state.c - tells threads of the data plane that the state of some File has changed.
 *
 * Programs wait for a state by its futex; a loop cannot. Before it sleeps it arms its
 * watch and looks at the states once more; who stores a state looks for armed watches
 * afterwards. Both steps are in one order for all, so that one of the two sees the other.
 */
#include "dataplane/replica_state.h"

#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct watch *watches;
static atomic_uint armed_count; /* lets most stores pass without the lock */

/* watch_add - from now on changes in this Catalog ring the bell of this loop if armed. */
void watch_add(struct watch *w, const void *catalog, struct loop *loop)
{
    w->catalog = catalog;
    w->loop = loop;
    pthread_mutex_lock(&lock);
    w->next = watches;
    watches = w;
    pthread_mutex_unlock(&lock);
}

static void disarm(struct watch *w)
{
    if (atomic_exchange(&w->armed, false))
        atomic_fetch_sub(&armed_count, 1);
}

/* watch_remove - after this the loop may be closed. */
void watch_remove(struct watch *w)
{
    struct watch **at = &watches;
    pthread_mutex_lock(&lock);
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
    disarm(w);
    pthread_mutex_unlock(&lock);
}

/* watch_arm - asks for one ring at the next change; false: it was armed already. */
bool watch_arm(struct watch *w)
{
    if (atomic_exchange(&w->armed, true))
        return false;
    atomic_fetch_add(&armed_count, 1);
    return true;
}

/* watch_tell - rings for all who wait for a change in this Catalog. */
void watch_tell(const void *catalog)
{
    if (!atomic_fetch_add(&armed_count, 0)) /* a store before it is not held back */
        return;
    pthread_mutex_lock(&lock);
    for (struct watch *w = watches; w; w = w->next) {
        if (w->catalog != catalog || !atomic_load(&w->armed))
            continue;
        disarm(w);
        loop_ring(w->loop);
    }
    pthread_mutex_unlock(&lock);
}
