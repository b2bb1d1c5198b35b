/* table_control.c - creates the staging table for Python, changes its plan, peers and capacities,
 * and returns its counters. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/table.h"

static uint64_t row_count(const struct table *t)
{
    return t->options.files ? t->options.first[t->options.files] : 0;
}

/* monarch_table_new - creates a table with Tiers without capacity, whose rows have no destination.
 * -EINVAL: too many Tiers or no root; -ENOMEM. */
int monarch_table_new(const struct monarch_table_options *options, struct table **out)
{
    if (!options->roots || options->tiers >= TIERS_MAX)
        return -EINVAL;
    struct table *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->options = *options;
    t->words = (_Atomic uint32_t *)options->words;
    pthread_mutex_init(&t->lock, NULL);
    for (uint32_t i = 0; i < TIERS_MAX; i++)
        t->accounts[i].in_service = i <= options->tiers;
    t->rows = calloc(row_count(t) + 1, sizeof(*t->rows));
    t->promised = calloc(options->files / 8 + 1, 1);
    t->pieces = calloc(options->files / 8 + 1, 1);
    t->offers = calloc(options->files + 1, 1);
    t->packed = calloc(row_count(t) + 1, 1);
    t->peers = calloc(PEERS_MAX, 1);
    t->fetched = calloc(PEERS_MAX, sizeof(*t->fetched));
    if (!t->rows || !t->promised || !t->pieces || !t->offers || !t->packed ||
        !t->peers || !t->fetched) {
        monarch_table_free(t);
        return -ENOMEM;
    }
    *out = t;
    return 0;
}

/* monarch_table_free - frees a table that no thread uses. */
void monarch_table_free(struct table *t)
{
    pthread_mutex_destroy(&t->lock);
    free(t->rows);
    free(t->promised);
    free(t->pieces);
    free(t->offers);
    free(t->packed);
    free(t->peers);
    free(t->fetched);
    free(t);
}

/* promise_all - promises room to each File that is to be kept and is absent. */
static void promise_all(struct table *t)
{
    t->promised_bytes = 0;
    memset(t->promised, 0, t->options.files / 8 + 1);
    for (uint64_t file = 0; file < t->options.files; file++) {
        uint32_t seen = atomic_load_explicit(&t->words[file], memory_order_relaxed);
        uint64_t need = table_kept_need(t, (uint32_t)file);
        if (!need || STATE_OF(seen) != REPLICA_ABSENT || t->offers[file] ||
            table_is_packed(t, (uint32_t)file))
            continue;
        t->promised[file / 8] |= (uint8_t)(1u << file % 8);
        t->promised_bytes += need;
    }
}

/* monarch_table_follow - uses this plan from now on; running Transfers continue. -EINVAL: too many
 * peers. */
int monarch_table_follow(struct table *t, const struct monarch_plan *plan)
{
    if (plan->peers > PEERS_MAX)
        return -EINVAL;
    pthread_mutex_lock(&t->lock);
    memcpy(t->rows, plan->rows, row_count(t) * sizeof(*t->rows));
    t->own = plan->own;
    t->peer_count = plan->peers;
    t->uses_pool = plan->uses_pool;
    promise_all(t);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

/* monarch_table_set_peer - sets whether a peer may be asked, and whether it is gone. */
void monarch_table_set_peer(struct table *t, uint32_t peer, uint32_t bits)
{
    if (peer >= PEERS_MAX)
        return;
    pthread_mutex_lock(&t->lock);
    t->peers[peer] = (uint8_t)bits;
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_publish - publishes a verified copy as the data plane does, for models of it;
 * returns 0 or -errno as table_publish(). */
int monarch_table_publish(struct table *t, const struct monarch_order *order,
                          uint32_t source)
{
    return table_publish(t, order, STATE_WORD(REPLICA_READY, order->tier, source));
}

/* monarch_table_offer - offers a Replica of an earlier job: it is verified before the File is
 * copied from elsewhere. 0: its Tier has no room for it, or would hold it as a frame. */
int monarch_table_offer(struct table *t, uint32_t file, uint32_t tier)
{
    pthread_mutex_lock(&t->lock);
    bool offered = !t->offers[file] && tier < t->options.tiers &&
                   (table_in_part(t, file) || !table_packs(t, tier, file)) &&
                   table_reserve_in(t, tier, footprint(t->options.sizes[file]));
    if (offered) {
        t->offers[file] = (uint8_t)(tier + 1);
        t->tally.offered++;
        table_set_promised(t, file, false);
    }
    pthread_mutex_unlock(&t->lock);
    return offered;
}

/* monarch_table_withdraw - withdraws an offer; returns its Tier, or -1 if the File is not
 * offered. */
int monarch_table_withdraw(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    int tier = t->offers[file] - 1;
    if (tier >= 0) {
        t->accounts[tier].reserved -= footprint(t->options.sizes[file]);
        t->offers[file] = 0;
        t->tally.offered--;
    }
    pthread_mutex_unlock(&t->lock);
    return tier;
}

/* monarch_table_offers - copies the offers: per File its Tier plus 1, or 0. */
void monarch_table_offers(struct table *t, uint8_t *out)
{
    pthread_mutex_lock(&t->lock);
    memcpy(out, t->offers, t->options.files);
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_remove - releases the room of a Replica whose name was removed. */
void monarch_table_remove(struct table *t, uint32_t file, uint32_t tier)
{
    pthread_mutex_lock(&t->lock);
    table_free_room(t, tier, footprint(t->options.sizes[file]));
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_set_capacity - sets how many bytes of a Tier may be used. */
void monarch_table_set_capacity(struct table *t, uint32_t tier, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    t->accounts[tier].capacity = bytes;
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_shrink - limits a Tier to its used and reserved bytes. */
void monarch_table_shrink(struct table *t, uint32_t tier)
{
    struct monarch_account *a = &t->accounts[tier];
    pthread_mutex_lock(&t->lock);
    a->capacity = a->used + a->reserved;
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_retire - takes a Tier out of service; returns 1, or 0 if it already is.
 * Reservations are released as Transfers end; nothing is published into the Tier any more. */
int monarch_table_retire(struct table *t, uint32_t tier)
{
    struct monarch_account *a = &t->accounts[tier];
    pthread_mutex_lock(&t->lock);
    int retired = a->in_service != 0;
    a->in_service = 0;
    a->used = 0;
    table_leave_packed(t, tier);
    pthread_mutex_unlock(&t->lock);
    return retired;
}

/* monarch_table_account - copies the account of a Tier or of the Pool. */
void monarch_table_account(struct table *t, uint32_t tier, struct monarch_account *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->accounts[tier];
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_fetched - copies the counts of Files and bytes fetched from a peer. */
void monarch_table_fetched(struct table *t, uint32_t peer, struct monarch_fetched *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->fetched[peer % PEERS_MAX];
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_spare - returns the room of the Tiers that kept Files will not need; below 0: they
 * do not all have room. */
int64_t monarch_table_spare(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t spare = table_spare_bytes(t);
    pthread_mutex_unlock(&t->lock);
    return spare;
}

/* monarch_table_tally - copies all counters; a running Transfer counts as busy until now. */
void monarch_table_tally(struct table *t, struct monarch_tally *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->tally;
    if (out->in_flight)
        out->busy_ns += clock_ns() - t->busy_since_ns;
    out->origin_busy_ns = table_origin_busy_ns(t);
    pthread_mutex_unlock(&t->lock);
}

/* monarch_table_stop - stops the table: no Transfer begins any more. */
void monarch_table_stop(struct table *t)
{
    atomic_store_explicit(&t->stopping, true, memory_order_release);
}
