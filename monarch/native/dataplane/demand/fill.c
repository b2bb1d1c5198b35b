/* fill.c - background fill: begins the Files that Python has ordered, one after the other.
 *
 * Two lists are processed side by side: Files that this node reads from the origin, and Files that
 * it fetches from peers. The second list stays a little after the first, because peers read their
 * own lists as fast.
 */
#include "dataplane/demand/demand.h"

#include "dataplane/demand/hints.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/deferred.h"
#include "shared/catalog.h"

enum {
    LOOKED_AT_MAX = 64,  /* Files in one call, most of which may be staged already */
    FETCHES_AHEAD = 128, /* some wait until owners have read the Files */
    FETCHES_BUSY = 32,
    FETCHED_BYTES_AHEAD = 8 << 20,
    FETCHED_BYTES_BUSY = 1 << 20, /* requests of programs queue behind these */
    BEHIND_PARTS = 20,            /* reading is 1/20 of its list ahead of fetching */
};

/* Programs that requested so recently are expected to request again. */
static const uint64_t BUSY_NS = SECOND_NS / 2;

static uint64_t left_of(const struct fill_list *l)
{
    return l->count - l->next;
}

/* fills - Python has set Files to fill with. */
static bool fills(const struct demand *d)
{
    return d->fill.to_read.count || d->fill.to_fetch.count;
}

static const struct root_queue *root_of(const struct demand *d, uint32_t file)
{
    uint32_t root = 0;
    catalog_entry(d->job->catalog, file, &root);
    return &d->transfers->roots[root];
}

/* take - begins the next File of a list that can be begun; skips the others. */
static bool take(struct demand *d, struct fill_list *l, struct monarch_order *out)
{
    for (int n = 0; n < LOOKED_AT_MAX && left_of(l); n++) {
        uint32_t file = l->files[l->next++];
        int verdict = monarch_table_begin(d->table, file, MONARCH_BACKGROUND, out);
        if (verdict == VERDICT_BEGUN)
            return true;
        if (verdict == VERDICT_WRITTEN)
            report_file_locked(d->transfers, file);
    }
    return false;
}

/* fill_may_read - Files are left to read from the origin, no hints precede them, and a thread is
 * free for the next one. Files whose origin does not answer are skipped: Python begins the list
 * again when it answers again. */
bool fill_may_read(const struct demand *d)
{
    const struct fill_list *l = &d->fill.to_read;
    if (!d->table || !fills(d) || hints_wanted(d))
        return false;
    if (partials_begun(d->partials) || !left_of(l))
        return partials_incomplete(d->partials);
    const struct root_queue *q = root_of(d, l->files[l->next]);
    return q->stalled || (q->running + q->lost < d->transfers->root_threads &&
                          q->background_begun < d->transfers->root_background);
}

/* fill_read - begins the next File that this node reads from the origin, or continues a large one
 * whose rest was not available; at last, the missing parts of Files that programs have read in
 * part. */
bool fill_read(struct demand *d, struct monarch_order *out)
{
    struct fill_list *l = &d->fill.to_read;
    if (partial_next_incomplete(d->partials, true, out))
        return true;
    for (int n = 0; n < LOOKED_AT_MAX && left_of(l); n++) {
        if (root_of(d, l->files[l->next])->stalled)
            l->next++;
        else if (fill_may_read(d))
            return take(d, l, out);
    }
    return fills(d) && !left_of(l) && partial_next_incomplete(d->partials, false, out);
}

/* behind - returns how many Files may be fetched before fetching catches up with reading. */
static uint64_t behind(const struct fill *f)
{
    const struct fill_list *read = &f->to_read, *fetch = &f->to_fetch;
    if (!left_of(read))
        return left_of(fetch);
    double part = (double)read->next / (double)read->count - 1.0 / BEHIND_PARTS;
    double before = part * (double)fetch->count - (double)fetch->next;
    return before > 0 ? (uint64_t)before : 0;
}

/* fill_fetch_room - returns how many more Files may be fetched: they share connections with demand.
 * `count` and `bytes` are those being fetched unasked. */
uint64_t fill_fetch_room(const struct demand *d, uint64_t count, uint64_t bytes)
{
    const struct fill *f = &d->fill;
    uint64_t asked = atomic_load_explicit(&d->asked_ns, memory_order_relaxed);
    bool busy = asked && clock_ns() - asked < BUSY_NS;
    uint64_t bytes_max = busy ? FETCHED_BYTES_BUSY : FETCHED_BYTES_AHEAD;
    uint64_t most = busy ? FETCHES_BUSY : FETCHES_AHEAD;
    if (!d->table || !left_of(&f->to_fetch) || f->paused || bytes >= bytes_max ||
        count >= most || deferred_is_behind(d->transfers))
        return 0;
    uint64_t room = 1 + (bytes_max - bytes) / f->mean_bytes, due = behind(f);
    room = room < most - count ? room : most - count;
    return room < due ? room : due;
}

/* fill_may_fetch - missing parts of large Files may be fetched unasked. */
bool fill_may_fetch(struct demand *d)
{
    pthread_mutex_lock(&d->transfers->lock);
    bool may = d->table && fills(d) && !d->fill.paused && !hints_wanted(d) &&
               !deferred_is_behind(d->transfers);
    pthread_mutex_unlock(&d->transfers->lock);
    return may;
}

/* fill_call - resumes fetches of missing parts of large Files; called with each heartbeat. */
void fill_call(struct demand *d)
{
    if (!partials_to_complete(d->partials))
        return;
    pthread_mutex_lock(&d->transfers->lock);
    if (d->fetcher.of && fills(d))
        d->fetcher.wake(d->fetcher.of);
    pthread_mutex_unlock(&d->transfers->lock);
}

/* fill_fetch_next - sends an order for some missing part of a large File; false: none. */
bool fill_fetch_next(struct demand *d)
{
    struct monarch_order order;
    if (!partial_next_fetch(d->partials, &order))
        return false;
    const struct page_run run = {order.first_page, order.page_count};
    if (!pages_send(d, &order)) {
        partial_release(d->partials, &order);
        return false;
    }
    pages_check_asked(d, (uint32_t)presence_find(d->job->flags, order.file), run);
    return true;
}

/* fill_fetch - begins the next File that is fetched from a peer, or from the origin if its peers
 * have left. */
bool fill_fetch(struct demand *d, struct monarch_order *out)
{
    return take(d, &d->fill.to_fetch, out);
}

/* fill_paused - no program runs on this node. */
bool fill_paused(struct demand *d)
{
    pthread_mutex_lock(&d->transfers->lock);
    bool paused = d->fill.paused;
    pthread_mutex_unlock(&d->transfers->lock);
    return paused;
}
