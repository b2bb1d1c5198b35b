/* compaction.c - frames of Files that were written are forgotten, and segments of which a
 * quarter or more is not needed are emptied: what is left in them is copied into another one.
 *
 * It has a thread of its own, which works only while no Transfer runs or waits, one frame at a
 * time. A frame stands at its old place until the copy is whole, so that a reader finds one of
 * them; who reads the old one while it goes looks again (repacking.c).
 */
#include "dataplane/transfers/compaction.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/api/engine.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/staging_table.h"
#include "dataplane/base/syscalls.h"
#include "shared/catalog.h"

enum {
    DEAD_PARTS = 4,         /* a segment is emptied when one part of so many is dead */
    LOOKED_AT = 1 << 14,    /* Files at once, under the lock */
    LEAST_BYTES = 64 << 10, /* a smaller segment is not worth it */
};

static const uint64_t PERIOD_NS = 200 * MS_NS;

struct compaction {
    struct engine *engine;
    pthread_t thread;
    pthread_cond_t woken;
    uint32_t swept;  /* the next File that may have been written */
    uint32_t victim; /* the segment that is emptied, plus 1; 0: none */
    uint64_t row;    /* the next frame that may be in it */
};

/* is_idle - nothing runs and nothing waits, but for what hangs. */
static bool is_idle(struct engine *e)
{
    struct monarch_tally tally;
    monarch_table_tally(e->table, &tally);
    pthread_mutex_lock(&e->lock);
    bool idle = !tally.in_flight && scheduler_is_idle(e);
    pthread_mutex_unlock(&e->lock);
    return idle && !engine_stopping(e);
}

/* ---- Files that were written ----------------------------------------------------------- */

/* next_written - the next File that is packed and was written; false: none of these. */
static bool next_written(struct compaction *c, uint32_t *file)
{
    struct engine *e = c->engine;
    uint64_t end = c->swept + (uint64_t)LOOKED_AT, count = e->catalog->file_count;
    bool found = false;
    pthread_mutex_lock(&e->packs->lock);
    for (; !found && c->swept < end && c->swept < count; c->swept++) {
        *file = c->swept;
        found = e->packs->places[packs_row(e->packs, *file, 0)].segment &&
                !table_in_part(e->table, *file) && table_written(e->table, *file);
    }
    pthread_mutex_unlock(&e->packs->lock);
    if (c->swept >= count)
        c->swept = 0;
    return found;
}

static void sweep(struct compaction *c)
{
    uint32_t file;
    while (next_written(c, &file)) {
        table_forget_packed(c->engine->table, file);
        packs_forget(c->engine->packs, packs_row(c->engine->packs, file, 0));
    }
}

/* ---- segments that are emptied ---------------------------------------------------------- */

static bool is_worth_it(const struct pack_segment *s)
{
    return !s->dropped && !s->stuck && !s->pending && s->bytes >= LEAST_BYTES &&
           (s->bytes - s->held) * DEAD_PARTS > s->bytes;
}

/* choose - finds a segment to empty. Nothing is appended to it any more. */
static void choose(struct compaction *c)
{
    struct packs *p = c->engine->packs;
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

static uint64_t rows_of(const struct engine *e)
{
    return e->table->options.first[e->catalog->file_count];
}

/* find - the next frame that is in the segment; false: none of these. */
static bool find(struct compaction *c, uint64_t *row, struct unpacking *out)
{
    struct engine *e = c->engine;
    uint64_t end = c->row + LOOKED_AT, count = rows_of(e);
    bool found = false;
    pthread_mutex_lock(&e->packs->lock);
    for (; !found && c->row < end && c->row < count; c->row++) {
        *row = c->row;
        found = e->packs->places[*row].segment == c->victim;
    }
    pthread_mutex_unlock(&e->packs->lock);
    return found && packs_take(e->packs, *row, out);
}

/* copy - 0, or -errno: there is no room for the copy, and the frame stays. */
static int copy(struct engine *e, uint64_t row, const struct unpacking *u,
                const uint8_t *bytes)
{
    struct frame_place to;
    size_t n = u->place.bytes;
    if (!table_take_room(e->table, u->tier, n))
        return -ENOSPC;
    int rc = packs_append(e->packs, u->tier, bytes, n, &to);
    if (!rc && packs_move(e->packs, row, &u->place, &to)) {
        table_count_compacted(e->table, n, 0);
        return 0;
    }
    table_give_room(e->table, u->tier, n);
    return rc;
}

/* drop - a frame is damaged. */
static void drop(struct engine *e, uint32_t file, uint64_t row)
{
    uint32_t extent = (uint32_t)(row - packs_row(e->packs, file, 0));
    if (table_show_extent(e->table, file, extent, 0))
        packs_forget(e->packs, row);
    else
        packing_give_up(e, file);
}

/* move - copies a frame out of the segment; one that is damaged is dropped. */
static int move(struct engine *e, uint64_t row, const struct unpacking *u)
{
    uint32_t file = packs_file(e->packs, row);
    size_t n = u->place.bytes;
    uint8_t *bytes = malloc(n);
    if (!bytes)
        return -ENOMEM;
    int rc = 0;
    if (file_read_at(u->fd, bytes, n, u->place.offset) == (ssize_t)n &&
        n > sizeof(struct frame_head) && packing_is_of(e, file, bytes))
        rc = copy(e, row, u, bytes);
    else if (!packs_moved(e->packs, row, &u->place))
        drop(e, file, row);
    free(bytes);
    return rc;
}

/* give_up - the segment stays as it is, until another frame of it dies. */
static void give_up(struct compaction *c)
{
    struct packs *p = c->engine->packs;
    pthread_mutex_lock(&p->lock);
    p->segments[c->victim - 1].stuck = true;
    pthread_mutex_unlock(&p->lock);
    c->victim = 0;
}

/* end_victim - all frames were looked at: the segment is empty unless it got new frames. */
static void end_victim(struct compaction *c)
{
    struct packs *p = c->engine->packs;
    pthread_mutex_lock(&p->lock);
    bool empty = p->segments[c->victim - 1].dropped;
    pthread_mutex_unlock(&p->lock);
    table_count_compacted(c->engine->table, 0, empty);
    c->victim = 0;
}

/* step - one frame, or a look at some Files; false: there is nothing to do. */
static bool step(struct compaction *c)
{
    struct unpacking u;
    uint64_t row;
    if (!c->victim)
        choose(c);
    if (!c->victim)
        return false;
    if (find(c, &row, &u)) {
        if (u.place.segment == c->victim && move(c->engine, row, &u))
            give_up(c);
    } else if (c->row >= rows_of(c->engine)) {
        end_victim(c);
    }
    return true;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void rest(struct compaction *c)
{
    struct engine *e = c->engine;
    const struct timespec until = clock_timespec(clock_ns() + PERIOD_NS);
    pthread_mutex_lock(&e->lock);
    if (!engine_stopping(e))
        pthread_cond_timedwait(&c->woken, &e->lock, &until);
    pthread_mutex_unlock(&e->lock);
}

static void *run(void *compaction)
{
    struct compaction *c = compaction;
    struct engine *e = c->engine;
    while (!engine_stopping(e)) {
        rest(c);
        sweep(c);
        while (is_idle(e) && step(c)) {
        }
    }
    pthread_mutex_lock(&e->lock);
    e->running--;
    pthread_cond_broadcast(&e->ended);
    pthread_mutex_unlock(&e->lock);
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

/* compaction_start - starts the thread, with all signals blocked; under the lock of the
 * engine, among whose threads it counts. */
int compaction_start(struct engine *e, struct compaction **out)
{
    sigset_t all, before;
    struct compaction *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->engine = e;
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
    e->running++;
    *out = c;
    return 0;
}

/* compaction_wake - lets the thread see that the engine stops; under its lock. */
void compaction_wake(struct compaction *c)
{
    if (c)
        pthread_cond_signal(&c->woken);
}

/* compaction_free - the thread has ended, or does so now. */
void compaction_free(struct compaction *c)
{
    if (!c)
        return;
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->woken);
    free(c);
}
