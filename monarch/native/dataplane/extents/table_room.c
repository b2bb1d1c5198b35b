/* table_room.c - the room of the Tiers and of the Pool: used, reserved, and promised to Files that
 * are to be kept. All callers hold the lock of the table. */
#include "dataplane/extents/table.h"

#include "dataplane/base/clock.h"

/* table_page_ahead - returns the bytes of a Tier that must stay free: a page for the segment that
 * may begin with the next frame, if none is left beside its capacity. */
uint64_t table_page_ahead(const struct table *t, uint32_t tier)
{
    const struct last_pages *pages = &t->last_pages[tier];
    return t->ratios[tier] && pages->segments >= pages->beside ? PAGE_BYTES : 0;
}

/* table_free_in - returns the bytes of a Tier that may be reserved. */
uint64_t table_free_in(const struct table *t, uint32_t tier)
{
    uint64_t found = account_free(&t->accounts[tier]);
    uint64_t ahead = table_page_ahead(t, tier);
    return found > ahead ? found - ahead : 0;
}

/* table_reserve_in - reserves room in this Tier; false: it has none. */
bool table_reserve_in(struct table *t, uint32_t tier, uint64_t need)
{
    if (need > table_free_in(t, tier))
        return false;
    t->accounts[tier].reserved += need;
    return true;
}

/* table_reserve_first - reserves room in the fastest Tier that has it; returns the Tier, or -1. */
int table_reserve_first(struct table *t, uint64_t need)
{
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (table_reserve_in(t, i, need))
            return (int)i;
    return -1;
}

static bool reserve_file_in(struct table *t, uint32_t tier, uint32_t file)
{
    if (!table_reserve_in(t, tier, table_need(t, tier, file)))
        return false;
    if (table_packs(t, tier, file))
        t->frames_ns[tier] = clock_ns();
    return true;
}

/* table_reserve_file - does the same for a small File. */
int table_reserve_file(struct table *t, uint32_t file)
{
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (reserve_file_in(t, i, file))
            return (int)i;
    return -1;
}

/* table_reserve_packed - does the same for its frame in a packed Tier. */
int table_reserve_packed(struct table *t, uint32_t file)
{
    for (uint32_t i = 0; i < t->options.tiers; i++)
        if (table_packs(t, i, file) && reserve_file_in(t, i, file))
            return (int)i;
    return -1;
}

/* table_extents_packed - a large File whose Extents this node keeps is held packed: no faster plain
 * Tier has room for all of it. */
bool table_extents_packed(const struct table *t, uint32_t file)
{
    uint64_t need = footprint(t->options.sizes[file]);
    for (uint32_t i = 0; i < t->options.tiers; i++) {
        if (table_packs(t, i, file))
            return true;
        if (need <= table_free_in(t, i))
            return false;
    }
    return false;
}

/* table_spare_bytes - returns the free bytes that kept Files do not need; below 0: they lack
 * room. */
int64_t table_spare_bytes(const struct table *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->options.tiers; i++)
        sum += table_free_in(t, i);
    return (int64_t)(sum - t->promised_bytes);
}

/* table_reserve_spare - does the same as table_reserve_first() for a File that need not be kept. */
int table_reserve_spare(struct table *t, uint64_t need)
{
    return (int64_t)need > table_spare_bytes(t) ? -1 : table_reserve_first(t, need);
}

/* table_set_promised - sets whether room is promised to a File that is to be kept. */
void table_set_promised(struct table *t, uint32_t file, bool promised)
{
    uint8_t bit = (uint8_t)(1u << file % 8);
    if (promised == !!(t->promised[file / 8] & bit))
        return;
    t->promised[file / 8] ^= bit;
    uint64_t need = table_kept_need(t, file);
    t->promised_bytes += promised ? need : -need;
}

/* table_reserve_pool - reserves room in the Pool; a File that no program waits for leaves an eighth
 * free. Returns the Pool, or -1. */
int table_reserve_pool(struct table *t, uint64_t need, bool yields)
{
    uint32_t pool = t->options.tiers;
    uint64_t ahead = t->accounts[pool].capacity / 8;
    if (yields && account_free(&t->accounts[pool]) < need + ahead)
        return -1;
    return table_reserve_in(t, pool, need) ? (int)pool : -1;
}

/* table_free_room - frees the room of a Replica; nothing is counted for a Tier out of service. */
void table_free_room(struct table *t, uint32_t tier, uint64_t need)
{
    struct monarch_account *a = &t->accounts[tier];
    a->used -= a->in_service ? need : 0;
}
