/* table_evictions.c - decides which Files may evict others from a Tier: those that programs request
 * or will open. Background fill evicts nothing. */
#include "dataplane/extents/table.h"

/* monarch_table_evict - lets requested Files evict Replicas from this Tier. */
void monarch_table_evict(struct table *t, uint32_t tier)
{
    pthread_mutex_lock(&t->lock);
    t->evicts[tier] = true;
    pthread_mutex_unlock(&t->lock);
}

static bool would_fit(const struct table *t, uint32_t tier, uint32_t file)
{
    const struct monarch_account *a = &t->accounts[tier];
    return t->evicts[tier] && a->in_service && table_need(t, tier, file) <= a->capacity;
}

/* table_can_evict - some Tier would have room for the File if others were evicted. */
bool table_can_evict(const struct table *t, uint32_t file)
{
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (would_fit(t, i, file))
            return true;
    return false;
}

/* table_can_evict_for - the same, for a caller without the lock. */
bool table_can_evict_for(struct table *t, uint32_t file)
{
    pthread_mutex_lock(&t->lock);
    bool leave = table_can_evict(t, file);
    pthread_mutex_unlock(&t->lock);
    return leave;
}

/* table_evicting_pack - returns the packed Tier that evicts others for the File when it is packed;
 * -1: none. */
int table_evicting_pack(const struct table *t, uint32_t file)
{
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (table_packs(t, i, file) && would_fit(t, i, file))
            return (int)i;
    return -1;
}

static bool is_wanted(const struct monarch_order *order)
{
    return order->kind & (MONARCH_ASKED | MONARCH_HINT | MONARCH_PARTLY);
}

/* table_makes_room - others are evicted from a Tier for the File of an order, if it finds no room:
 * this node is to keep it, or no node is. */
bool table_makes_room(const struct table *t, const struct monarch_order *order,
                      uint8_t destination)
{
    bool here = destination == DESTINATION_TIER || destination == DESTINATION_NOWHERE;
    return here && is_wanted(order) && table_can_evict(t, order->file);
}

/* table_large_verdict - returns VERDICT_BEGUN if a large File may begin: in Tiers that evict, it
 * needs room for all of it in one. A File held packed uses the room that is free when its Extents
 * arrive. */
int table_large_verdict(const struct table *t, const struct monarch_order *order)
{
    uint64_t row = t->options.first[order->file];
    uint64_t end = t->options.first[order->file + 1];
    uint64_t need = footprint(t->options.sizes[order->file]);
    uint8_t to = t->rows[row].destination;
    if (!table_can_evict(t, order->file) || table_extents_packed(t, order->file) ||
        (to != DESTINATION_TIER && to != DESTINATION_NOWHERE))
        return VERDICT_BEGUN;
    for (; row < end; row++)
        if (t->rows[row].destination != to)
            return VERDICT_BEGUN;
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (table_free_in(t, i) >= need)
            return VERDICT_BEGUN;
    return is_wanted(order) ? VERDICT_EVICT : VERDICT_PASSED;
}

/* table_absent_reason - returns the reason for the absence of a File without room. */
uint32_t table_absent_reason(const struct table *t, uint32_t file)
{
    return table_can_evict(t, file) ? REASON_NONE : REASON_NO_ROOM;
}

/* table_evicts_in - others can be evicted from a Tier for a File, until `need` bytes are free. */
bool table_evicts_in(struct table *t, uint32_t tier, uint32_t file, uint64_t *need)
{
    pthread_mutex_lock(&t->lock);
    bool fits = would_fit(t, tier, file);
    *need = table_need(t, tier, file);
    pthread_mutex_unlock(&t->lock);
    return fits;
}

/* table_has_free - `need` bytes are free in a Tier. */
bool table_has_free(struct table *t, uint32_t tier, uint64_t need)
{
    pthread_mutex_lock(&t->lock);
    bool has = table_free_in(t, tier) >= need;
    pthread_mutex_unlock(&t->lock);
    return has;
}

/* table_set_full - notes whether Files that wait to be packed find no space for now. */
void table_set_full(struct table *t, bool stays)
{
    pthread_mutex_lock(&t->lock);
    t->stays_full = stays;
    pthread_mutex_unlock(&t->lock);
}

/* table_count_evicted - counts Files that were evicted from a Tier to make room. */
void table_count_evicted(struct table *t, uint32_t tier, uint64_t files, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    t->accounts[tier].evicted_files += files;
    t->accounts[tier].evicted_bytes += bytes;
    pthread_mutex_unlock(&t->lock);
}
