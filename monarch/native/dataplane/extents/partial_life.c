/* partial_life.c - begins and ends partial Replicas: large Files that are staged in part.
 *
 * A partial Replica is a sparse file of full size under the Replica's own name, which only the
 * agent can write. Its room is freed as a whole, by removing the file. One lock guards all of them;
 * no thread waits for the origin under it.
 */
#include "dataplane/extents/partial.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"

enum {
    OPEN_MAX = 256, /* files of partial Replicas that stay open */
    HANDED_MAX = 4096,
    REFUSED_MAX = 256,
    POOLED_MAX = 1 << 16, /* half a TB in the Pool */
};

/* partials_new - creates the partial Replicas; none without large Files or a table. */
int partials_new(struct job *job, struct table *table, struct packs *packs,
                 struct partials **out)
{
    const struct presence *p = presence_of(job->flags);
    struct partials *parts = calloc(1, sizeof(*parts));
    if (!parts)
        return -ENOMEM;
    *out = parts;
    parts->job = job;
    parts->table = table;
    parts->packs = packs;
    pthread_mutex_init(&parts->lock, NULL);
    pthread_cond_init(&parts->changed, NULL);
    if (!p || !p->count || !table)
        return 0;
    parts->all = calloc(p->count, sizeof(struct partial *));
    parts->digests = calloc(p->count, sizeof(*parts->digests));
    parts->count = (uint32_t)p->count;
    bool made = parts->all && parts->digests &&
                !ring_init(&parts->handed, sizeof(struct monarch_order), HANDED_MAX) &&
                !ring_init(&parts->pooled, sizeof(struct pooled_extent), POOLED_MAX) &&
                !ring_init(&parts->refused, sizeof(struct pooled_extent), REFUSED_MAX);
    return made ? 0 : -ENOMEM;
}

static void close_file(struct partials *all, int *fd)
{
    if (*fd < 0)
        return;
    close(*fd);
    *fd = -1;
    all->open--;
}

static void close_files(struct partials *all, struct partial *p)
{
    close_file(all, &p->source);
    for (int i = 0; i < TIERS_MAX; i++)
        close_file(all, &p->files[i].fd);
}

static void release(struct partial *p)
{
    pthread_mutex_destroy(&p->opening);
    free(p->claimed);
    free(p->each);
    free(p->digests);
    free(p);
}

/* hide - hides all Pages from programs, before the file is removed. */
static void hide(struct partial *p)
{
    atomic_store_explicit((_Atomic uint64_t *)&p->part->replica, 0,
                          memory_order_seq_cst);
    for (uint32_t i = 0; i < p->extents * EXTENT_BLOCKS; i++)
        if (atomic_load_explicit(&p->words[i], memory_order_relaxed))
            atomic_store_explicit(&p->words[i], 0, memory_order_release);
}

static void set_ended(struct partials *all, struct partial *p)
{
    partial_set_stage(all, p,
                      (struct stage){.completing = p->completing, .ended = true});
}

/* remove_file - removes a file, unless its name is that of another file by now, which a Transfer
 * from a peer may have published. */
static void remove_file(const struct partials *parts, const struct partial *p, int tier)
{
    struct stat st;
    uint64_t ino = p->files[tier].ino;
    if (ino &&
        fstatat(parts->job->tiers[tier], p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_ino == ino)
        unlinkat(parts->job->tiers[tier], p->name, 0);
}

static void remove_files(struct partials *parts, struct partial *p)
{
    for (int i = 0; i < TIERS_MAX; i++)
        remove_file(parts, p, i);
    if (p->pieces || p->gathers)
        partial_leave_places(parts, p);
}

/* keep_digests - keeps the checksums of a READY Replica: Blocks for peers are checked by them. */
static void keep_digests(struct partials *all, struct partial *p)
{
    free(all->digests[p->large].blocks);
    all->digests[p->large] = (struct digests){p->digests, p->order.word};
    p->digests = NULL;
}

/* drop - removes a partial Replica that has ended and that no Transfer uses; under the lock. */
static void drop(struct partials *parts, struct partial *p)
{
    set_ended(parts, p);
    if (!job_stopping(parts->job)) /* else the report still counts it */
        hide(p);
    if (p->status)
        remove_files(parts, p);
    else
        keep_digests(parts, p);
    if (p->gathers && !job_stopping(parts->job)) /* its frames are of no use any more */
        extents_forget(parts, p);
    close_files(parts, p);
    parts->all[p->large] = NULL;
    release(p);
}

/* partials_free - removes the incomplete Replicas; no thread uses them any more. */
void partials_free(struct partials *parts)
{
    if (!parts)
        return;
    for (uint32_t i = 0; parts->all && i < parts->count; i++) {
        struct partial *p = parts->all[i];
        if (!p)
            continue;
        p->status = p->ended ? p->status : -ECANCELED;
        drop(parts, p);
    }
    for (uint32_t i = 0; parts->digests && i < parts->count; i++)
        free(parts->digests[i].blocks);
    pthread_cond_destroy(&parts->changed);
    pthread_mutex_destroy(&parts->lock);
    ring_free(&parts->handed);
    ring_free(&parts->pooled);
    ring_free(&parts->refused);
    free(parts->digests);
    free(parts->all);
    free(parts);
}

/* partial_applies - the order stages a large File in a Tier, by its Pages. */
bool partial_applies(const struct partials *parts, const struct monarch_order *order)
{
    return parts->count && order->peer == NO_PEER && !(order->kind & MONARCH_ADOPT) &&
           order->file < parts->job->catalog->file_count &&
           presence_find(parts->job->flags, order->file) >= 0;
}

static struct partial *make(struct partials *parts, const struct monarch_order *order,
                            uint32_t large)
{
    struct partial *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    uint64_t size = parts->table->options.sizes[order->file];
    p->large = large;
    p->pages = pages_of(size);
    p->extents = (uint32_t)extents_of(size);
    p->part = presence_part(parts->job->flags, large);
    p->words = presence_words(parts->job->flags, large);
    p->changes = presence_changes(parts->job->flags, large);
    p->places = presence_places(parts->job->flags, large);
    p->pieces = table_is_in_pieces(parts->table, order->file);
    p->source = -1;
    for (int i = 0; i < TIERS_MAX; i++)
        p->files[i].fd = -1;
    p->order = *order;
    p->order.first_page = p->order.page_count = 0;
    size_t blocks = (size_t)p->extents * EXTENT_BLOCKS;
    p->claimed = calloc(2 * blocks, sizeof(*p->claimed));
    p->unasked = p->claimed + blocks;
    p->digests = calloc(blocks, sizeof(*p->digests));
    p->each = calloc(p->extents, sizeof(*p->each));
    pthread_mutex_init(&p->opening, NULL);
    catalog_replica_name(parts->job->catalog, order->file, p->name);
    if (p->claimed && p->digests && p->each)
        return p;
    release(p);
    return NULL;
}

static bool same_word(uint32_t a, uint32_t b)
{
    return (a & STATE_GENERATION) == (b & STATE_GENERATION);
}

/* add - returns the partial Replica of an order, an existing or a new one; under the lock. NULL: an
 * earlier one of the File is still used, or out of memory. */
static struct partial *add(struct partials *parts, const struct monarch_order *order)
{
    uint32_t large = (uint32_t)presence_find(parts->job->flags, order->file);
    struct partial *p = parts->all[large];
    if (p && !p->ended && same_word(p->order.word, order->word) &&
        p->order.tier == order->tier)
        return p;
    if (p && p->users)
        return NULL;
    if (p) {
        p->status = p->ended ? p->status : -ECANCELED;
        drop(parts, p);
    }
    p = make(parts, order, large);
    if (!p)
        return NULL;
    parts->all[large] = p;
    extents_restore(parts, p);
    partial_count_new(parts, p);
    partial_set_places(parts, p);
    uint64_t tag = (uint64_t)++parts->serial << 32 | part_tag(order->word);
    atomic_store_explicit((_Atomic uint64_t *)&p->part->replica, tag,
                          memory_order_release);
    return p;
}

/* partial_add - begins a partial Replica without any Page. */
bool partial_add(struct partials *parts, const struct monarch_order *order)
{
    pthread_mutex_lock(&parts->lock);
    struct partial *p = add(parts, order);
    pthread_mutex_unlock(&parts->lock);
    return p != NULL;
}

/* outdated - the order does not stage its File any more. */
static bool outdated(const struct partials *parts, const struct monarch_order *order)
{
    uint32_t word = replica_load(parts->job->catalog, order->file);
    return STATE_OF(word) != REPLICA_STAGING || !same_word(word, order->word);
}

/* partial_expect - does the same for a Transfer that will copy all Pages: until it has a thread,
 * programs may request the Pages that they need. */
void partial_expect(struct partials *parts, const struct monarch_order *order)
{
    if (order->page_count || !partial_applies(parts, order) || outdated(parts, order))
        return;
    pthread_mutex_lock(&parts->lock);
    struct partial *p = add(parts, order);
    if (p)
        partial_set_stage(parts, p,
                          (struct stage){.completing = true, .ended = p->ended});
    pthread_mutex_unlock(&parts->lock);
}

/* spare_files - closes files of partial Replicas that no Transfer uses, while too many are open. */
static void spare_files(struct partials *all)
{
    for (uint32_t i = 0; all->open > OPEN_MAX && i < all->count; i++) {
        struct partial *p = all->all[i];
        if (p && !p->users)
            close_files(all, p);
    }
}

/* find - finds the partial Replica of a Transfer; an order for Pages needs an existing one. */
static struct partial *find(struct partials *parts, const struct monarch_order *order)
{
    if (!order->page_count)
        return add(parts, order);
    int64_t large = presence_find(parts->job->flags, order->file);
    struct partial *p = large < 0 ? NULL : parts->all[large];
    return p && !p->ended && same_word(p->order.word, order->word) ? p : NULL;
}

/* partial_enter - enters the partial Replica of an order for one Transfer. -ECANCELED: the
 * generation of the order has passed; -EAGAIN: another generation still uses its file. */
int partial_enter(struct partials *parts, const struct monarch_order *order,
                  struct partial **out)
{
    if (outdated(parts, order))
        return -ECANCELED;
    pthread_mutex_lock(&parts->lock);
    struct partial *p = *out = find(parts, order);
    if (p) {
        p->users++;
        if (!order->page_count)
            partial_set_stage(parts, p,
                              (struct stage){.completing = true, .ended = p->ended});
    }
    pthread_mutex_unlock(&parts->lock);
    return p ? 0 : -EAGAIN;
}

/* partial_opened - notes that one of its files is open. */
void partial_opened(struct partials *parts, int *at, int fd)
{
    pthread_mutex_lock(&parts->lock);
    *at = fd;
    parts->open++;
    spare_files(parts);
    pthread_mutex_unlock(&parts->lock);
}

/* partial_leave - notes that a Transfer does not use it any more. */
void partial_leave(struct partials *parts, struct partial *p, bool completes)
{
    pthread_mutex_lock(&parts->lock);
    p->users--;
    if (completes)
        partial_set_stage(parts, p,
                          (struct stage){false, p->postponed, p->ended, p->abandoned});
    if (p->ended && !p->users)
        drop(parts, p);
    pthread_mutex_unlock(&parts->lock);
}

/* partial_end - ends it, published or failed with `status`; false: it had already ended. */
bool partial_end(struct partials *parts, struct partial *p, int status)
{
    pthread_mutex_lock(&parts->lock);
    bool first = !p->ended;
    if (first) {
        set_ended(parts, p);
        p->status = status;
        atomic_fetch_add_explicit((_Atomic uint32_t *)&p->part->failures, status != 0,
                                  memory_order_release);
    }
    pthread_cond_broadcast(&parts->changed);
    pthread_mutex_unlock(&parts->lock);
    return first;
}

/* partial_ended - it has ended; stores its status. */
bool partial_ended(struct partials *parts, struct partial *p, int *status)
{
    pthread_mutex_lock(&parts->lock);
    bool ended = p->ended;
    *status = p->status;
    pthread_mutex_unlock(&parts->lock);
    return ended;
}

/* check - checks one partial Replica; true: the File was written, which must be reported. */
static bool check(struct partials *parts, struct partial *p)
{
    uint32_t word = replica_load(parts->job->catalog, p->order.file);
    bool published = STATE_OF(word) == REPLICA_READY && same_word(word, p->order.word);
    if (!published && outdated(parts, &p->order)) {
        p->status = -ECANCELED;
        set_ended(parts, p);
        if (!p->users)
            drop(parts, p);
        return false;
    }
    partial_clear_postponed(parts, p);
    partial_reconsider(parts, p);
    return !p->condemned && table_written(parts->table, p->order.file);
}

/* due - makes an order for a partial Replica that needs a Transfer; returns 1 if it needs one. */
static uint32_t due(struct partial *p, bool condemned, struct monarch_order *out)
{
    uint32_t extent = 0;
    bool unfinished = !condemned && p->finish_later && partial_unfinished(p, &extent);
    p->condemned = p->condemned || condemned;
    *out = p->order;
    out->kind = MONARCH_ASKED | (p->order.kind & MONARCH_PARTLY);
    out->first_page = extent * EXTENT_PAGES;
    out->page_count = 1;
    out->tried = unfinished ? PAGES_PRESENT : SOURCES_MAX; /* the origin */
    return condemned || unfinished;
}

/* partials_check - ends those whose Files are not staged any more; returns orders for those that
 * were written meanwhile, which Transfers report to Python, or that have Extents to complete. */
uint32_t partials_check(struct partials *parts, struct monarch_order *out, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t i = 0; i < parts->count && n < max; i++) {
        struct partial *p = parts->all[i];
        if (!p || p->ended)
            continue;
        bool condemned = check(parts, p);
        if (parts->all[i] == p && !p->ended)
            n += due(p, condemned, &out[n]);
    }
    pthread_mutex_unlock(&parts->lock);
    return n;
}

/* give_up - gives up a partial Replica; returns its bytes in a Tier, 0: it is being published. */
static uint64_t give_up(struct partials *parts, struct partial *p, uint32_t reason)
{
    uint64_t held = (uint64_t)p->present * PAGE_BYTES;
    if (!monarch_table_fail(parts->table, &p->order, reason, 0))
        return 0;
    p->status = -ECANCELED;
    set_ended(parts, p);
    if (!p->users)
        drop(parts, p);
    return held;
}

/* partial_damaged - handles Blocks of a Replica that differ from those that arrived: a partial
 * Replica is removed, and its File may be staged again; a READY one is reported to Python. */
void partial_damaged(struct partials *parts, uint32_t file, const struct held *held)
{
    int64_t large = presence_find(parts->job->flags, file);
    if (!held->part) {
        parts->job->judge(parts->job->judge_of, file);
        return;
    }
    pthread_mutex_lock(&parts->lock);
    struct partial *p = parts->all[large];
    if (p && !p->ended && same_word(p->order.word, held->word))
        give_up(parts, p, REASON_NONE);
    pthread_mutex_unlock(&parts->lock);
}

/* is_in - some of it is in a Tier, or will be. */
static bool is_in(const struct partial *p, uint32_t tier)
{
    return p->pieces ? p->files[tier].ino != 0 : p->order.tier == tier;
}

/* partials_drop - removes partial Replicas from a Tier whose memory is needed, until `bytes` are
 * freed; their Files are absent for the reason. Returns the freed bytes; a Replica in use is
 * removed when its Transfers end. */
uint64_t partials_drop(struct partials *parts, uint32_t tier, uint64_t bytes,
                       uint32_t reason)
{
    uint64_t freed = 0;
    if (!parts->count)
        return 0;
    pthread_mutex_lock(&parts->lock);
    for (uint32_t i = 0; i < parts->count && freed < bytes; i++) {
        struct partial *p = parts->all[i];
        if (p && !p->ended && is_in(p, tier))
            freed += give_up(parts, p, reason);
    }
    pthread_mutex_unlock(&parts->lock);
    return freed;
}
