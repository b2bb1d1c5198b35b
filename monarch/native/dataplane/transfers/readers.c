/* readers.c - tokens that limit how many Transfers of this node read the origin at once.
 *
 * The job has a number of tokens; Python sets the share of this node. A Transfer that a program
 * waits for takes one before its first read, the oldest Transfer first. If none is free, it waits
 * up to TOKEN_WAIT_NS and then reads without one: programs can always read the origin. A background
 * Transfer begins or continues only while a token is free that no program waits for; the scheduler
 * takes it for the next read, so that no thread waits for a token. A token is returned when its
 * Transfer ends, yields, or waits for bytes that others read.
 *
 * The token of a hanging thread does not count, as the thread does not.
 */
#include "dataplane/transfers/transfers.h"

#include <errno.h>

#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"

static const uint64_t TOKEN_WAIT_NS = SECOND_NS / 10;

static bool is_limited(const struct transfers *ts)
{
    return ts->options.readers_max != 0;
}

/* count - counts the Transfers of each class that hold a token, and those that wait for one. */
static struct reader_counts count(const struct transfers *ts)
{
    struct reader_counts found = {0};
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct transfer *t = &ts->transfers[i];
        bool counts = !t->turn.lost && !ts->roots[t->turn.queue].stalled;
        bool background = order_class(t->order.kind) == CLASS_BACKGROUND;
        found.waiting += counts && t->turn.awaits_token;
        found.reading[background] += counts && t->turn.has_token;
    }
    return found;
}

/* note_most - updates the most tokens wanted at once, by which Python leases them. */
static void note_most(struct transfers *ts)
{
    struct reader_counts now = count(ts);
    struct readers *r = &ts->readers;
    uint32_t demand = now.reading[CLASS_DEMAND] + now.waiting;
    uint32_t background = now.reading[CLASS_BACKGROUND];
    r->most[CLASS_DEMAND] = demand > r->most[CLASS_DEMAND] ? demand
                                                           : r->most[CLASS_DEMAND];
    r->most[CLASS_BACKGROUND] = background > r->most[CLASS_BACKGROUND]
                                    ? background
                                    : r->most[CLASS_BACKGROUND];
}

/* has_turn - a token is free for a Transfer, and for all older ones that wait. */
static bool has_turn(const struct transfers *ts, const struct transfer *t)
{
    struct reader_counts now = count(ts);
    uint32_t taken = now.reading[CLASS_DEMAND] + now.reading[CLASS_BACKGROUND];
    for (uint32_t i = 0; i < ts->transfer_count; i++) {
        const struct transfer *other = &ts->transfers[i];
        taken += other->turn.awaits_token && other != t &&
                 other->turn.age < t->turn.age;
    }
    return taken < ts->readers.limit;
}

/* wait_for_turn - waits for a token; false: none was free in time. */
static bool wait_for_turn(struct transfers *ts, struct transfer *t)
{
    const struct timespec until = clock_timespec(clock_ns() + TOKEN_WAIT_NS);
    int rc = 0;
    t->turn.awaits_token = true;
    note_most(ts);
    while (!has_turn(ts, t) && !rc)
        rc = pthread_cond_timedwait(&ts->readers.freed, &ts->lock, &until);
    t->turn.awaits_token = false;
    return has_turn(ts, t);
}

static void count_without(struct table *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->tally.reads_without_token++;
    pthread_mutex_unlock(&t->lock);
}

/* readers_free - a background Transfer may read: a token is free for which no program
 * waits. The caller holds the lock of the Transfers. */
bool readers_free(const struct transfers *ts)
{
    if (!is_limited(ts))
        return true;
    struct reader_counts now = count(ts);
    return now.waiting + now.reading[CLASS_DEMAND] + now.reading[CLASS_BACKGROUND] <
           ts->readers.limit;
}

/* readers_reserve - takes the token that a Transfer needs for its next read; the caller holds the
 * lock, and has called readers_free(). */
void readers_reserve(struct transfers *ts, struct transfer *t)
{
    if (!is_limited(ts) || transfer_is_local(t))
        return;
    t->turn.has_token = true;
    note_most(ts);
}

/* readers_enter - takes a token before a read of the origin, unless the Transfer has one. */
void readers_enter(struct transfers *ts, struct transfer *t)
{
    if (!is_limited(ts) || transfer_is_local(t))
        return;
    pthread_mutex_lock(&ts->lock);
    bool right = t->turn.has_token || wait_for_turn(ts, t);
    t->turn.has_token = true;
    pthread_mutex_unlock(&ts->lock);
    if (!right)
        count_without(ts->table);
}

/* readers_give_back - returns the token, if the Transfer has one. */
void readers_give_back(struct transfers *ts, struct transfer *t)
{
    if (!t->turn.has_token)
        return;
    t->turn.has_token = false;
    pthread_cond_broadcast(&ts->readers.freed);
}

/* readers_leave - returns the token before the Transfer waits for others. */
void readers_leave(struct transfers *ts, struct transfer *t)
{
    if (!is_limited(ts))
        return;
    pthread_mutex_lock(&ts->lock);
    readers_give_back(ts, t);
    pthread_mutex_unlock(&ts->lock);
}

/* readers_set - sets the number of tokens of the node; Transfers above it finish their reads.
 * Without options.readers_max it has no effect. */
void readers_set(struct transfers *ts, uint32_t n)
{
    pthread_mutex_lock(&ts->lock);
    ts->readers.limit = n;
    pthread_cond_broadcast(&ts->readers.freed);
    idle_call_all(ts);
    pthread_mutex_unlock(&ts->lock);
}

/* readers_report - reports how many tokens are in use, and were wanted since the last call. */
void readers_report(struct transfers *ts, struct monarch_readers *out)
{
    struct readers *r = &ts->readers;
    pthread_mutex_lock(&ts->lock);
    struct reader_counts now = count(ts);
    note_most(ts);
    *out = (struct monarch_readers){
        .reading = now.reading[CLASS_DEMAND] + now.reading[CLASS_BACKGROUND],
        .demand = r->most[CLASS_DEMAND],
        .background = r->most[CLASS_BACKGROUND],
        .lacking = r->lacking,
    };
    r->most[CLASS_DEMAND] = r->most[CLASS_BACKGROUND] = 0;
    note_most(ts);
    pthread_mutex_unlock(&ts->lock);
}
