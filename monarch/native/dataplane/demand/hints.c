/* hints.c - reads ahead the Files that programs will open: each is begun before background fill,
 * into a Tier or the Pool, as far ahead as the Pool has space.
 *
 * An idle copy thread takes the next File of an order, one program after the other. When the Pool
 * is full of Files that are not opened yet, the hints wait, and the thread that waits for requests
 * checks whether that has changed. A File that was opened before its turn is skipped, so that a
 * wrong order reads nothing twice.
 */
#include "dataplane/demand/hints.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/demand/demand.h"
#include "dataplane/extents/eviction.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"

enum {
    LOOKED_AT_MAX = 64, /* hints in one call, most of which need nothing */
    FRESH = 1 << 15,    /* bit of `pending`: no hint of the File was handled */
    PENDING_MAX = FRESH - 1,
};

/* A File for which the Pool has no space, though no open is expected, is skipped after this
 * time. */
static const uint64_t BLOCKED_NS = SECOND_NS / 10;
/* How often the Pool is retried while no program opens anything. */
static const uint64_t AGAIN_NS = SECOND_NS / 20;
/* While programs open prefetched Files, the Pool is checked often, but less often with many
 * claims. */
static const uint64_t MOVING_NS = SECOND_NS, CLAIM_NS = 2000;

enum look { LOOK_PASSED, LOOK_BEGUN, LOOK_BLOCKED };

/* hints_new - creates the state without hints; hints_free() must follow, even after a failure. */
int hints_new(struct demand *d, struct hints **out)
{
    struct hints *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    *out = h;
    pthread_mutex_init(&h->lock, NULL);
    h->claims.sizes = d->table->options.sizes;
    h->claims.opened = (_Atomic uint8_t *)d->job->flags + d->job->flags->opened;
    h->pending = calloc(d->job->catalog->file_count + 1, sizeof(*h->pending));
    int rc = claims_init(&h->claims, d->job->catalog->file_count);
    return h->pending ? rc : -ENOMEM;
}

/* hints_free - frees the hints; no thread uses them any more. */
void hints_free(struct hints *h)
{
    if (!h)
        return;
    for (uint32_t i = 0; i < h->order_count; i++)
        free(h->orders[i].files);
    claims_free(&h->claims);
    free(h->pending);
    free(h);
}

/* ---- orders; the callers hold the lock ---------------------------------------------- */

static uint16_t pending_of(const struct hints *h, uint32_t file)
{
    return h->pending[file] & (uint16_t)~FRESH;
}

static void take_hint(struct hints *h, uint32_t file)
{
    uint16_t pending = pending_of(h, file);
    h->pending[file] = pending ? pending - 1 : 0;
}

/* remove_order - removes an order; the last one takes its place. */
static void remove_order(struct hints *h, struct hint_order *o)
{
    while (o->next < o->count)
        take_hint(h, o->files[o->next++]);
    free(o->files);
    *o = h->orders[--h->order_count];
}

static struct hint_order *order_of(struct hints *h, uint64_t program)
{
    for (uint32_t i = 0; i < h->order_count; i++)
        if (h->orders[i].program == program)
            return &h->orders[i];
    return NULL;
}

/* add_order - adds an order; earlier opens of its Files do not count for it. */
static void add_order(struct hints *h, const struct hint_order *o)
{
    for (uint64_t i = 0; i < o->count; i++) {
        uint32_t file = o->files[i];
        if (!pending_of(h, file)) {
            h->pending[file] = FRESH;
            claims_absorb(&h->claims, file);
        }
        h->pending[file] += pending_of(h, file) < PENDING_MAX;
    }
    h->orders[h->order_count++] = *o;
}

/* replace_order - replaces the former order of a program. */
static int replace_order(struct hints *h, const struct hint_order *o)
{
    struct hint_order *former = order_of(h, o->program);
    claims_forget(&h->claims, o->program);
    if (former)
        remove_order(h, former);
    if (o->count && h->order_count == HINT_ORDERS_MAX)
        return -ENOSPC;
    if (o->count)
        add_order(h, o);
    return 0;
}

static struct hint_order *next_order(struct hints *h)
{
    while (h->order_count) {
        h->turn = (h->turn + 1) % h->order_count;
        struct hint_order *o = &h->orders[h->turn];
        if (o->next < o->count)
            return o;
        remove_order(h, o);
    }
    return NULL;
}

/* ---- one hint; the callers hold the lock -------------------------------------------- */

/* budget_of - returns how much of the Pool hints may use: some is left for programs that request
 * other Files, more where these pass through the Pool, too. */
static uint64_t budget_of(const struct demand *d)
{
    struct monarch_account a;
    monarch_table_account(d->table, d->table->options.tiers, &a);
    if (!a.in_service)
        return 0;
    return table_uses_pool(d->table) ? a.capacity / 2 : a.capacity / 4 * 3;
}

/* claim - claims one more open of a File that is or will be in this Tier. */
static void claim(struct demand *d, const struct hint_order *o, uint32_t file,
                  uint32_t tier)
{
    struct claims *c = &d->hints->claims;
    if (tier != d->table->options.tiers || !claims_take_pooled(c, file, o->program))
        claims_take(c, file);
}

/* is_full - so much is read ahead that the next File must wait. */
static bool is_full(struct claims *c, uint64_t need, uint64_t budget)
{
    bool full = c->pooled.count && c->bytes + need > budget;
    if (full && claims_drop(c))
        full = c->pooled.count && c->bytes + need > budget;
    return full;
}

/* begin - begins a File that is absent. */
static enum look begin(struct demand *d, const struct hint_order *o,
                       struct monarch_order *out)
{
    struct claims *c = &d->hints->claims;
    uint32_t file = o->files[o->next], kind = MONARCH_BACKGROUND | MONARCH_HINT;
    uint64_t need = footprint(c->sizes[file]), budget = budget_of(d);
    if (need <= budget && is_full(c, need, budget))
        return LOOK_BLOCKED;
    int verdict = eviction_begin(d->eviction, d->table, file, kind, out);
    if (verdict == VERDICT_POOL && need <= budget) {
        pool_make_room(d->pool, need);
        verdict = eviction_begin(d->eviction, d->table, file, kind, out);
    }
    if (verdict == VERDICT_WRITTEN)
        report_file(d->transfers, file);
    if (verdict == VERDICT_BEGUN)
        return LOOK_BEGUN;
    return verdict == VERDICT_POOL && need <= budget ? LOOK_BLOCKED : LOOK_PASSED;
}

/* look_at - handles the next File of an order. */
static enum look look_at(struct demand *d, struct hint_order *o,
                         struct monarch_order *out)
{
    struct hints *h = d->hints;
    uint32_t file = o->files[o->next], word = replica_load(d->job->catalog, file);
    uint32_t tier = STATE_TIER(word);
    enum look look = LOOK_PASSED;
    bool early = claims_absorb(&h->claims, file);
    if (early && (h->pending[file] & FRESH)) {
        /* It is opened already. Later ones of its hints may follow several opens. */
    } else if (STATE_OF(word) != REPLICA_ABSENT) {
        claim(d, o, file, tier);
    } else {
        look = begin(d, o, out);
        tier = look == LOOK_BEGUN ? out->tier : TIERS_MAX;
        if (look != LOOK_BLOCKED)
            claim(d, o, file, tier);
    }
    return look;
}

/* waits - the Pool has no space for the next File of an order, but may have some later. Files
 * claimed by other hints will be opened some time: only without claims does the time count. */
static bool waits(struct hints *h, struct hint_order *o, uint64_t now)
{
    if (h->claims.pooled.count) {
        o->blocked_ns = 0;
        return true;
    }
    o->blocked_ns = o->blocked_ns ? o->blocked_ns : now;
    return now - o->blocked_ns < BLOCKED_NS;
}

/* go_on - handles hints until one is begun, or the Pool is full. */
static enum look go_on(struct demand *d, struct monarch_order *out)
{
    struct hints *h = d->hints;
    for (int n = 0; n < LOOKED_AT_MAX; n++) {
        struct hint_order *o = next_order(h);
        enum look look = o ? look_at(d, o, out) : LOOK_BLOCKED;
        if (!o || (look == LOOK_BLOCKED && waits(h, o, clock_ns())))
            return LOOK_BLOCKED;
        take_hint(h, o->files[o->next++]);
        o->blocked_ns = 0;
        if (look == LOOK_BEGUN)
            return look;
    }
    return LOOK_PASSED;
}

/* ---- for others -------------------------------------------------------------------- */

/* hints_begin - begins the next File that programs will open, if one can be begun now. The caller
 * holds no lock. */
void hints_begin(struct demand *d)
{
    struct hints *h = d->hints;
    struct monarch_order order;
    pthread_mutex_lock(&h->lock);
    enum look look = go_on(d, &order);
    if (look == LOOK_BLOCKED)
        atomic_store_explicit(&h->wanted, false, memory_order_relaxed);
    pthread_mutex_unlock(&h->lock);
    if (look == LOOK_BEGUN)
        start_order(d, &order);
}

/* want - lets a thread handle the hints, and wake others. */
static void want(struct demand *d)
{
    pthread_mutex_lock(&d->transfers->lock);
    atomic_store_explicit(&d->hints->wanted, true, memory_order_relaxed);
    scheduler_call(d->transfers);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* hints_poll - resumes hints that had no space, if some may be free now; true: the caller polls
 * again soon. */
bool hints_poll(struct demand *d)
{
    struct hints *h = d->hints;
    uint64_t now = clock_ns();
    if (!h)
        return false;
    if (hints_wanted(d)) {
        want(d); /* fetches that hints waited for may have ended */
        return true;
    }
    pthread_mutex_lock(&h->lock);
    bool left = h->order_count > 0;
    bool due = now - h->looked_ns >= CLAIM_NS * h->claims.pooled.count;
    bool dropped = left && due && claims_drop(&h->claims);
    if (dropped)
        h->moved_ns = now;
    bool moves = now - h->moved_ns < MOVING_NS;
    bool again = left && (dropped || now - h->looked_ns >= AGAIN_NS);
    h->looked_ns = again ? now : h->looked_ns;
    pthread_mutex_unlock(&h->lock);
    if (again)
        want(d);
    return left && moves;
}

/* hints_set - replaces the Files that a program will open next, in this order. -ENOSPC: too many
 * programs give hints; -EINVAL: no such File; -ENOSYS: the segments do not support hints;
 * -ENOMEM. */
int hints_set(struct demand *d, uint64_t program, const uint32_t *files, uint64_t n)
{
    struct hints *h = d->hints;
    struct hint_order o = {.program = program, .count = n};
    if (!h)
        return -ENOSYS;
    for (uint64_t i = 0; i < n; i++)
        if (files[i] >= d->job->catalog->file_count)
            return -EINVAL;
    o.files = n ? malloc(n * sizeof(*files)) : NULL;
    if (n && !o.files)
        return -ENOMEM;
    if (n)
        memcpy(o.files, files, n * sizeof(*files));
    atomic_store((_Atomic uint32_t *)&d->job->flags->hinted, 1);
    pthread_mutex_lock(&h->lock);
    int rc = replace_order(h, &o);
    pthread_mutex_unlock(&h->lock);
    if (rc)
        free(o.files);
    else
        want(d);
    return rc;
}

/* hints_report - reports the totals of hints. */
void hints_report(struct demand *d, struct monarch_hint_tally *out)
{
    struct hints *h = d->hints;
    *out = (struct monarch_hint_tally){0};
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    claims_drop(&h->claims);
    for (uint32_t i = 0; i < h->order_count; i++)
        out->left += h->orders[i].count - h->orders[i].next;
    out->unopened = h->claims.pooled.count;
    out->unopened_bytes = h->claims.bytes;
    out->given_up_files = h->claims.given_up;
    pthread_mutex_unlock(&h->lock);
}
