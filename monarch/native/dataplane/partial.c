/* partial.c - which large Files are staged in part: how they begin and end.
 *
 * A partial Replica is a sparse file of full size under the Replica's own name, which only
 * the agent can write. Its room is given up whole, by removing the file. One lock guards all
 * of them; under it nothing waits for the origin.
 */
#include "dataplane/partial.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/staging_table.h"
#include "dataplane/syscalls.h"
#include "shared/catalog.h"

enum { OPEN_MAX = 128 }; /* partial Replicas whose files stay open */

/* partials_new - for a job with Files that are too large to wait for; NULL for others. */
int partials_new(struct engine *e, struct partials **out)
{
    const struct presence *p = presence_of(e->flags);
    *out = NULL;
    if (!p || !p->count || !e->table)
        return 0;
    struct partials *all = calloc(1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    all->all = calloc(p->count, sizeof(struct partial *));
    all->count = (uint32_t)p->count;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    *out = all;
    return all->all ? 0 : -ENOMEM;
}

static void close_files(struct partial *p)
{
    if (p->source >= 0)
        close(p->source);
    if (p->target >= 0)
        close(p->target);
    p->source = p->target = -1;
}

static void release(struct partial *p)
{
    close_files(p);
    pthread_mutex_destroy(&p->opening);
    free(p->claimed);
    free(p->digests);
    free(p);
}

/* hide - no program finds Blocks in it any more, before its file goes. */
static void hide(struct partial *p)
{
    atomic_store_explicit((_Atomic uint64_t *)&p->part->replica, 0,
                          memory_order_seq_cst);
    for (uint32_t i = 0; i < p->extents; i++)
        atomic_store_explicit(&p->words[i], 0, memory_order_release);
}

static bool is_incomplete(const struct partial *p)
{
    return !p->ended && !p->completing;
}

/* set - whether a Transfer completes it, and whether it has ended; under the lock. */
static void set(struct partials *all, struct partial *p, bool completing, bool ended)
{
    uint32_t before = is_incomplete(p);
    p->completing = completing;
    p->ended = ended;
    atomic_fetch_add(&all->incomplete, is_incomplete(p) - before);
}

/* remove_file - unless the name is that of another file by now, which a Transfer from a peer
 * may have published. */
static void remove_file(const struct engine *e, const struct partial *p)
{
    struct stat st;
    int tier = e->tiers[p->order.tier];
    if (p->ino && fstatat(tier, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_ino == p->ino)
        unlinkat(tier, p->name, 0);
}

/* drop - removes one that has ended and is used by no Transfer; under the lock. */
static void drop(struct engine *e, struct partial *p)
{
    struct partials *all = e->partials;
    set(all, p, p->completing, true);
    hide(p);
    if (p->status)
        remove_file(e, p);
    all->open -= p->target >= 0;
    all->all[p->large] = NULL;
    release(p);
}

/* partials_free - removes what is not whole; no thread uses it any more. */
void partials_free(struct engine *e)
{
    struct partials *all = e->partials;
    if (!all)
        return;
    for (uint32_t i = 0; all->all && i < all->count; i++) {
        struct partial *p = all->all[i];
        if (!p)
            continue;
        p->status = p->ended ? p->status : -ECANCELED;
        drop(e, p);
    }
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all->all);
    free(all);
}

/* partial_applies - the order copies a large File from the origin into a Tier. */
bool partial_applies(const struct engine *e, const struct monarch_order *order)
{
    return e->partials && order->peer == NO_PEER && !(order->kind & MONARCH_ADOPT) &&
           !table_is_pool(e->table, order->tier) &&
           order->file < e->catalog->file_count &&
           presence_find(e->flags, order->file) >= 0;
}

static struct partial *make(struct engine *e, const struct monarch_order *order,
                            uint32_t large)
{
    struct partial *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    uint64_t size = e->table->options.sizes[order->file];
    p->large = large;
    p->blocks = blocks_of(size);
    p->extents = (p->blocks + EXTENT_BLOCKS - 1) / EXTENT_BLOCKS;
    p->part = presence_part(e->flags, large);
    p->words = presence_words(e->flags, large);
    p->source = p->target = -1;
    p->order = *order;
    p->order.first_block = p->order.block_count = 0;
    p->claimed = calloc(p->extents, sizeof(*p->claimed));
    p->digests = calloc(p->blocks, sizeof(*p->digests));
    pthread_mutex_init(&p->opening, NULL);
    catalog_replica_name(e->catalog, order->file, p->name);
    if (p->claimed && p->digests)
        return p;
    release(p);
    return NULL;
}

static bool same_word(uint32_t a, uint32_t b)
{
    return (a & STATE_GENERATION) == (b & STATE_GENERATION);
}

/* add - the partial Replica of an order, which may be there already; under the lock.
 * NULL: an earlier one of the File is still used, or there is no memory. */
static struct partial *add(struct engine *e, const struct monarch_order *order)
{
    struct partials *all = e->partials;
    uint32_t large = (uint32_t)presence_find(e->flags, order->file);
    struct partial *p = all->all[large];
    if (p && !p->ended && same_word(p->order.word, order->word) &&
        p->order.tier == order->tier)
        return p;
    if (p && p->users)
        return NULL;
    if (p) {
        p->status = p->ended ? p->status : -ECANCELED;
        drop(e, p);
    }
    p = make(e, order, large);
    if (!p)
        return NULL;
    all->all[large] = p;
    atomic_fetch_add(&all->incomplete, 1);
    uint64_t tag = (uint64_t)++all->serial << 32 | part_tag(order->word);
    atomic_store_explicit((_Atomic uint64_t *)&p->part->replica, tag,
                          memory_order_release);
    return p;
}

/* partial_add - begins a partial Replica without any Block. */
bool partial_add(struct engine *e, const struct monarch_order *order)
{
    pthread_mutex_lock(&e->partials->lock);
    struct partial *p = add(e, order);
    pthread_mutex_unlock(&e->partials->lock);
    return p != NULL;
}

/* spare_files - closes the files of one that no Transfer uses, where many are open. */
static void spare_files(struct partials *all)
{
    for (uint32_t i = 0; all->open > OPEN_MAX && i < all->count; i++) {
        struct partial *p = all->all[i];
        if (!p || p->users || p->target < 0)
            continue;
        close_files(p);
        all->open--;
    }
}

/* outdated - the File is not staged by the order any more. */
static bool outdated(const struct engine *e, const struct monarch_order *order)
{
    uint32_t word = replica_load(e->catalog, order->file);
    return STATE_OF(word) != REPLICA_STAGING || !same_word(word, order->word);
}

/* find - the partial Replica for a Transfer: Blocks are claimed in one that is there. */
static struct partial *find(struct engine *e, const struct monarch_order *order)
{
    if (!order->block_count)
        return add(e, order);
    int64_t large = presence_find(e->flags, order->file);
    struct partial *p = large < 0 ? NULL : e->partials->all[large];
    return p && !p->ended && same_word(p->order.word, order->word) ? p : NULL;
}

/* partial_enter - the partial Replica of an order, for one Transfer. -ECANCELED: the
 * generation of the order has passed; -EAGAIN: another generation still uses its file. */
int partial_enter(struct engine *e, const struct monarch_order *order,
                  struct partial **out)
{
    if (outdated(e, order))
        return -ECANCELED;
    pthread_mutex_lock(&e->partials->lock);
    struct partial *p = *out = find(e, order);
    if (p) {
        p->users++;
        set(e->partials, p, p->completing || !order->block_count, p->ended);
    }
    pthread_mutex_unlock(&e->partials->lock);
    return p ? 0 : -EAGAIN;
}

/* partial_opened - its files are open now. */
void partial_opened(struct engine *e, struct partial *p, int source, int target)
{
    pthread_mutex_lock(&e->partials->lock);
    p->source = source;
    p->target = target;
    e->partials->open++;
    spare_files(e->partials);
    pthread_mutex_unlock(&e->partials->lock);
}

/* partial_leave - the Transfer does not use it any more. */
void partial_leave(struct engine *e, struct partial *p, bool completes)
{
    pthread_mutex_lock(&e->partials->lock);
    p->users--;
    set(e->partials, p, p->completing && !completes, p->ended);
    if (p->ended && !p->users)
        drop(e, p);
    pthread_mutex_unlock(&e->partials->lock);
}

/* partial_end - it is published, or has failed with `status`; false: it had ended. */
bool partial_end(struct engine *e, struct partial *p, int status)
{
    pthread_mutex_lock(&e->partials->lock);
    bool first = !p->ended;
    if (first) {
        set(e->partials, p, p->completing, true);
        p->status = status;
        atomic_fetch_add_explicit((_Atomic uint32_t *)&p->part->failures, status != 0,
                                  memory_order_release);
    }
    pthread_cond_broadcast(&e->partials->changed);
    pthread_mutex_unlock(&e->partials->lock);
    return first;
}

/* partial_ended - whether it has, and how. */
bool partial_ended(struct engine *e, struct partial *p, int *status)
{
    pthread_mutex_lock(&e->partials->lock);
    bool ended = p->ended;
    *status = p->status;
    pthread_mutex_unlock(&e->partials->lock);
    return ended;
}

/* partials_incomplete - programs have read some Files in part, and nobody copies the rest. */
bool partials_incomplete(const struct engine *e)
{
    return e->partials && atomic_load(&e->partials->incomplete);
}

/* partial_next_incomplete - an order for all that such a File lacks. */
bool partial_next_incomplete(struct engine *e, struct monarch_order *out)
{
    bool found = false;
    if (!partials_incomplete(e))
        return false;
    pthread_mutex_lock(&e->partials->lock);
    for (uint32_t i = 0; !found && i < e->partials->count; i++) {
        struct partial *p = e->partials->all[i];
        found = p && is_incomplete(p);
        if (!found)
            continue;
        set(e->partials, p, true, false);
        *out = p->order;
        out->kind |= MONARCH_BACKGROUND;
    }
    pthread_mutex_unlock(&e->partials->lock);
    return found;
}

/* incomplete_of - the partial Replica of a File whose rest nobody copies; under the lock. */
static struct partial *incomplete_of(const struct engine *e, uint32_t file)
{
    int64_t large = presence_find(e->flags, file);
    struct partial *p = large < 0 ? NULL : e->partials->all[large];
    return p && is_incomplete(p) ? p : NULL;
}

/* partial_lacks - the File is staged in part, and nobody copies the rest. */
bool partial_lacks(const struct engine *e, uint32_t file)
{
    if (!partials_incomplete(e))
        return false;
    pthread_mutex_lock(&e->partials->lock);
    bool lacks = incomplete_of(e, file) != NULL;
    pthread_mutex_unlock(&e->partials->lock);
    return lacks;
}

/* partial_order_rest - an order for the rest of such a File, as demand: a program waits for
 * all of it. */
bool partial_order_rest(struct engine *e, uint32_t file, struct monarch_order *out)
{
    pthread_mutex_lock(&e->partials->lock);
    struct partial *p = incomplete_of(e, file);
    if (p) {
        set(e->partials, p, true, false);
        *out = p->order;
        out->kind = MONARCH_ASKED | (p->order.kind & MONARCH_PARTLY);
    }
    pthread_mutex_unlock(&e->partials->lock);
    return p != NULL;
}

/* check - one of them; true: it is to be told that the File was written. */
static bool check(struct engine *e, struct partial *p)
{
    uint32_t word = replica_load(e->catalog, p->order.file);
    bool published = STATE_OF(word) == REPLICA_READY && same_word(word, p->order.word);
    if (!published && outdated(e, &p->order)) {
        p->status = -ECANCELED;
        set(e->partials, p, p->completing, true);
        if (!p->users)
            drop(e, p);
        return false;
    }
    return !p->condemned && table_written(e->table, p->order.file);
}

/* partials_check - ends those whose Files are not staged any more; orders for those that
 * were written meanwhile, whose Transfers will tell Python. */
uint32_t partials_check(struct engine *e, struct monarch_order *out, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&e->partials->lock);
    for (uint32_t i = 0; i < e->partials->count && n < max; i++) {
        struct partial *p = e->partials->all[i];
        if (!p || p->ended || !check(e, p))
            continue;
        p->condemned = true;
        out[n] = p->order;
        out[n++].block_count = 1;
    }
    pthread_mutex_unlock(&e->partials->lock);
    return n;
}

/* give_up - what it holds of a Tier; 0: it is just being published. */
static uint64_t give_up(struct engine *e, struct partial *p, uint32_t reason)
{
    uint64_t held = (uint64_t)p->present * BLOCK_BYTES;
    if (!monarch_table_fail(e->table, &p->order, reason, 0))
        return 0;
    p->status = -ECANCELED;
    set(e->partials, p, p->completing, true);
    if (!p->users)
        drop(e, p);
    return held;
}

/* monarch_engine_drop_partial - removes partial Replicas from a Tier whose memory is needed,
 * until they have given back so many bytes; their Files are absent for a reason. Returns the
 * bytes: what Transfers still use goes when these end. */
uint64_t monarch_engine_drop_partial(struct engine *e, uint32_t tier, uint64_t bytes,
                                     uint32_t reason)
{
    uint64_t freed = 0;
    if (!e->partials)
        return 0;
    pthread_mutex_lock(&e->partials->lock);
    for (uint32_t i = 0; i < e->partials->count && freed < bytes; i++) {
        struct partial *p = e->partials->all[i];
        if (p && !p->ended && p->order.tier == tier)
            freed += give_up(e, p, reason);
    }
    pthread_mutex_unlock(&e->partials->lock);
    return freed;
}
