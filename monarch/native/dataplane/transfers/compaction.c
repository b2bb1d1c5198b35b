/* compaction.c - drops the frames of written Files, and empties segments more than a quarter of
 * which is dead: their live frames are copied into another segment.
 *
 * A thread of its own copies one frame at a time, only while no Transfer runs or waits. A frame
 * stays at its old place until the copy is complete, so that readers always find one of them; a
 * reader that fails at the old place retries (packs_moved()).
 */
#include "dataplane/transfers/compaction.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfers.h"
#include "shared/catalog.h"

enum {
    DEAD_PARTS = 4,         /* a segment is emptied when more than 1/4 is dead */
    LOOKED_AT = 1 << 14,    /* Files or rows scanned at once, under the lock */
    LEAST_BYTES = 64 << 10, /* a smaller segment is not worth it */
};

static const uint64_t PERIOD_NS = 200 * MS_NS;

struct compaction {
    struct transfers *transfers;
    pthread_t thread;
    pthread_cond_t woken;
    uint32_t swept;  /* the next File to check */
    uint32_t victim; /* the segment being emptied, plus 1; 0: none */
    uint64_t row;    /* the next row to scan for its frames */
};

/* is_idle - no Transfer runs or waits, except for hanging ones. */
static bool is_idle(struct transfers *ts)
{
    struct monarch_tally tally;
    monarch_table_tally(ts->table, &tally);
    pthread_mutex_lock(&ts->lock);
    bool idle = !tally.in_flight && scheduler_is_idle(ts);
    pthread_mutex_unlock(&ts->lock);
    return idle && !job_stopping(ts->job);
}

/* ---- Files that were written ----------------------------------------------------------- */

/* next_written - finds the next packed File that was written; false: none in this scan. */
static bool next_written(struct compaction *c, uint32_t *file)
{
    struct transfers *ts = c->transfers;
    uint64_t end = c->swept + (uint64_t)LOOKED_AT, count = ts->job->catalog->file_count;
    bool found = false;
    pthread_mutex_lock(&ts->packs->lock);
    for (; !found && c->swept < end && c->swept < count; c->swept++) {
        *file = c->swept;
        found = ts->packs->places[packs_row(ts->packs, *file, 0)].segment &&
                !table_in_part(ts->table, *file) && table_written(ts->table, *file);
    }
    pthread_mutex_unlock(&ts->packs->lock);
    if (c->swept >= count)
        c->swept = 0;
    return found;
}

static void sweep(struct compaction *c)
{
    uint32_t file;
    while (next_written(c, &file)) {
        packs_drop_frame(c->transfers->packs, file, 0);
    }
}

/* ---- segments that are emptied ---------------------------------------------------------- */

static bool is_worth_it(const struct pack_segment *s)
{
    return !s->dropped && !s->stuck && !s->pending && s->bytes >= LEAST_BYTES &&
           (s->bytes - s->held) * DEAD_PARTS > s->bytes;
}

/* choose - chooses a segment to empty. Nothing is appended to it any more. */
static void choose(struct compaction *c)
{
    struct packs *p = c->transfers->packs;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; !c->victim && i < p->segment_count; i++)
        if (is_worth_it(&p->segments[i]))
            c->victim = i + 1;
    if (c->victim) {
        struct packed_tier *t = &p->tiers[p->segments[c->victim - 1].tier];
        t->segment = t->segment == c->victim ? 0 : t->segment;
    }
    pthread_mutex_unlock(&p->lock);
    c->row = 0;
}

static uint64_t rows_of(const struct transfers *ts)
{
    return ts->table->options.first[ts->job->catalog->file_count];
}

/* find - finds the next frame in the segment; false: none in this scan. */
static bool find(struct compaction *c, uint64_t *row, struct unpacking *out)
{
    struct transfers *ts = c->transfers;
    uint64_t end = c->row + LOOKED_AT, count = rows_of(ts);
    bool found = false;
    pthread_mutex_lock(&ts->packs->lock);
    for (; !found && c->row < end && c->row < count; c->row++) {
        *row = c->row;
        found = ts->packs->places[*row].segment == c->victim;
    }
    pthread_mutex_unlock(&ts->packs->lock);
    return found && packs_take(ts->packs, *row, out);
}

/* copy - copies a frame into another segment; -errno: no space is free, and the frame stays. */
static int copy(struct transfers *ts, uint64_t row, const struct unpacking *u,
                const uint8_t *bytes)
{
    struct frame_place to;
    size_t n = u->place.bytes;
    if (!table_take_room(ts->table, u->tier, n))
        return -ENOSPC;
    int rc = packs_append(ts->packs, u->tier, bytes, n, &to);
    if (!rc && packs_move(ts->packs, row, &u->place, &to)) {
        table_count(ts->table, &(struct monarch_tally){.compacted_bytes = n});
        return 0;
    }
    table_give_room(ts->table, u->tier, n);
    return rc;
}

/* move - copies a frame out of the segment; a damaged one is dropped. */
static int move(struct transfers *ts, uint64_t row, const struct unpacking *u)
{
    uint32_t file = packs_file(ts->packs, row);
    size_t n = u->place.bytes;
    uint8_t *bytes = malloc(n);
    if (!bytes)
        return -ENOMEM;
    int rc = 0;
    if (file_read_at(u->fd, bytes, n, u->place.offset) == (ssize_t)n &&
        n > sizeof(struct frame_head) && job_frame_is_of(ts->job, file, bytes))
        rc = copy(ts, row, u, bytes);
    else if (!packs_moved(ts->packs, row, &u->place))
        packs_drop_damaged(ts->packs, file,
                           (uint32_t)(row - packs_row(ts->packs, file, 0)));
    free(bytes);
    return rc;
}

/* give_up - leaves the segment as it is until another of its frames dies. */
static void give_up(struct compaction *c)
{
    struct packs *p = c->transfers->packs;
    pthread_mutex_lock(&p->lock);
    p->segments[c->victim - 1].stuck = true;
    pthread_mutex_unlock(&p->lock);
    c->victim = 0;
}

/* end_victim - ends the scan of a segment: it is empty now, unless frames were added. */
static void end_victim(struct compaction *c)
{
    struct packs *p = c->transfers->packs;
    pthread_mutex_lock(&p->lock);
    bool empty = p->segments[c->victim - 1].dropped;
    pthread_mutex_unlock(&p->lock);
    table_count(c->transfers->table,
                &(struct monarch_tally){.compacted_segments = empty});
    c->victim = 0;
}

/* step - moves one frame, or scans some rows; false: no segment is worth it. */
static bool step(struct compaction *c)
{
    struct unpacking u;
    uint64_t row;
    if (!c->victim)
        choose(c);
    if (!c->victim)
        return false;
    if (find(c, &row, &u)) {
        if (u.place.segment == c->victim && move(c->transfers, row, &u))
            give_up(c);
    } else if (c->row >= rows_of(c->transfers)) {
        end_victim(c);
    }
    return true;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void rest(struct compaction *c)
{
    struct transfers *ts = c->transfers;
    const struct timespec until = clock_timespec(clock_ns() + PERIOD_NS);
    pthread_mutex_lock(&ts->lock);
    if (!job_stopping(ts->job))
        pthread_cond_timedwait(&c->woken, &ts->lock, &until);
    pthread_mutex_unlock(&ts->lock);
}

static void *run(void *compaction)
{
    struct compaction *c = compaction;
    struct transfers *ts = c->transfers;
    while (!job_stopping(ts->job)) {
        rest(c);
        sweep(c);
        while (is_idle(ts) && step(c)) {
        }
    }
    pthread_mutex_lock(&ts->lock);
    ts->running--;
    pthread_cond_broadcast(&ts->ended);
    pthread_mutex_unlock(&ts->lock);
    return NULL;
}

static int init_woken(struct compaction *c)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    if (rc)
        return rc;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&c->woken, &attributes);
    pthread_condattr_destroy(&attributes);
    return rc;
}

/* compaction_start - starts the thread, with all signals blocked; under the lock of the engine,
 * which counts it among its threads. */
int compaction_start(struct transfers *ts, struct compaction **out)
{
    sigset_t all, before;
    struct compaction *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->transfers = ts;
    int rc = init_woken(c);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = rc ? rc : pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        free(c);
        return -rc;
    }
    pthread_setname_np(c->thread, "compaction");
    ts->running++;
    *out = c;
    return 0;
}

/* compaction_wake - wakes the thread so that it sees the engine stop; under the engine's lock. */
void compaction_wake(struct compaction *c)
{
    if (c)
        pthread_cond_signal(&c->woken);
}

/* compaction_free - waits until the thread has ended, and frees it. */
void compaction_free(struct compaction *c)
{
    if (!c)
        return;
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->woken);
    free(c);
}
