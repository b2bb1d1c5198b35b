/* replica_table.c - the table of the inodes segment: from the inode of a Replica to its
 * File. Changes are serialised by the caller; look-ups need no lock. */
#include "replica_table.h"

#include <errno.h>
#include <stdatomic.h>

#include "xxh3.h"

enum { INODE_FREE = 0, INODE_REMOVED = 1 };
enum {
    CROWDED_PART = 13
}; /* probes get long when fewer slots than one of so many are free */

static uint64_t inode_home(const struct inodes *table, uint32_t tier, uint64_t ino)
{
    const uint64_t key[2] = {tier, ino};
    return (uint64_t)((unsigned __int128)xxh3(key, sizeof(key), 0) *
                          table->slot_count >>
                      64);
}

static uint64_t inode_load(const struct inode *slot)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&slot->ino,
                                memory_order_acquire);
}

static void inode_store(struct inode *slot, uint64_t ino)
{
    atomic_store_explicit((_Atomic uint64_t *)&slot->ino, ino, memory_order_release);
}

static uint32_t tier_of(const struct inode *slot)
{
    return slot->tier & ~INODE_KEPT;
}

/* inode_place - the slot that holds (tier, ino), else the first that may take it, or NULL
 * when the table is full. */
static struct inode *inode_place(struct inodes *table, uint32_t tier, uint64_t ino)
{
    uint64_t i = inode_home(table, tier, ino);
    struct inode *removed = NULL;
    for (uint64_t n = 0; n + 1 < table->slot_count; n++) {
        struct inode *slot = &table->slots[i];
        uint64_t held = inode_load(slot);
        if (held == ino && tier_of(slot) == tier)
            return slot;
        if (held == INODE_FREE)
            return removed ? removed : slot;
        if (held == INODE_REMOVED && !removed)
            removed = slot;
        i = i + 1 == table->slot_count ? 0 : i + 1;
    }
    return removed;
}

/* replica_find - the File whose Replica has this inode, or -1. */
int64_t replica_find(const struct inodes *table, uint32_t tier, uint64_t ino)
{
    uint64_t i = inode_home(table, tier, ino);
    for (uint64_t n = 0; n < table->slot_count; n++) {
        const struct inode *slot = &table->slots[i];
        uint64_t held = inode_load(slot);
        if (held == INODE_FREE)
            return -1;
        if (held == ino) {
            const struct inode seen = {.file = slot->file, .tier = tier_of(slot)};
            atomic_thread_fence(memory_order_acquire); /* read before the second look */
            if (seen.tier == tier && inode_load(slot) == ino)
                return seen.file;
        }
        i = i + 1 == table->slot_count ? 0 : i + 1;
    }
    return -1;
}

/* free_removed - lets probes end where nothing can lie behind: before a free slot. */
static void free_removed(struct inodes *table, uint64_t i)
{
    uint64_t last = table->slot_count - 1;
    if (inode_load(&table->slots[i == last ? 0 : i + 1]) != INODE_FREE)
        return;
    for (; inode_load(&table->slots[i]) == INODE_REMOVED; i = i ? i - 1 : last)
        inode_store(&table->slots[i], INODE_FREE);
}

static void take_out(struct inodes *table, struct inode *slot)
{
    table->used--;
    table->kept -= (slot->tier & INODE_KEPT) != 0;
    inode_store(slot, INODE_REMOVED);
}

/* make_room - removes what was kept longest, more or less, where a table is crowded. */
static void make_room(struct inodes *table)
{
    while (table->kept &&
           table->used >= table->slot_count - table->slot_count / CROWDED_PART) {
        uint64_t i = table->hand;
        struct inode *slot = &table->slots[i];
        table->hand = i + 1 == table->slot_count ? 0 : i + 1;
        if (inode_load(slot) <= INODE_REMOVED || !(slot->tier & INODE_KEPT))
            continue;
        take_out(table, slot);
        free_removed(table, i);
    }
}

/* replica_insert - maps (tier, ino) to a File; concurrent changes are the caller's to
 * serialise, look-ups may run at any time. -ENOSPC: the table is full. */
int replica_insert(struct inodes *table, uint32_t tier, uint64_t ino, uint32_t file)
{
    make_room(table);
    struct inode *slot = inode_place(table, tier, ino);
    if (!slot)
        return -ENOSPC;
    if (inode_load(slot) == ino)
        take_out(table, slot); /* look-ups must not see half of it */
    slot->file = file;
    slot->tier = tier;
    inode_store(slot, ino);
    table->used++;
    return 0;
}

/* held_place - the slot of an inode that is there, or -1. */
static int64_t held_place(const struct inodes *table, uint32_t tier, uint64_t ino)
{
    uint64_t i = inode_home(table, tier, ino);
    for (uint64_t n = 0; n < table->slot_count; n++) {
        const struct inode *slot = &table->slots[i];
        uint64_t held = inode_load(slot);
        if (held == INODE_FREE)
            return -1;
        if (held == ino && tier_of(slot) == tier)
            return (int64_t)i;
        i = i + 1 == table->slot_count ? 0 : i + 1;
    }
    return -1;
}

/* replica_remove - forgets an inode whose file is going; its slot stays occupied as long
 * as probes have to go on past it. To be serialised with replica_insert(). */
void replica_remove(struct inodes *table, uint32_t tier, uint64_t ino)
{
    int64_t i = held_place(table, tier, ino);
    if (i < 0)
        return;
    take_out(table, &table->slots[i]);
    free_removed(table, (uint64_t)i);
}

/* replica_keep - the Replica of an inode has gone; descriptors of it are known as long as
 * there is room. To be serialised with replica_insert(). */
void replica_keep(struct inodes *table, uint32_t tier, uint64_t ino)
{
    int64_t i = held_place(table, tier, ino);
    if (i < 0 || (table->slots[i].tier & INODE_KEPT))
        return;
    table->slots[i].tier |= INODE_KEPT;
    table->kept++;
}
