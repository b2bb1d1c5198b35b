/* replica_table.c - the table of the inodes segment, which maps the inode of a Replica to its File.
 * The caller serialises changes; look-ups need no lock. */
#include "replica_table.h"

#include <errno.h>
#include <stdatomic.h>

#include "xxh3.h"

enum { INODE_FREE = 0, INODE_REMOVED = 1 };
/* Probes get long when less than this part of the slots is free. */
enum { CROWDED_PART = 13 };

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

/* inode_place - returns the slot of (tier, ino), else the first free one; NULL: the table is
 * full. */
static struct inode *inode_place(struct inodes *table, uint32_t tier, uint64_t ino)
{
    uint64_t i = inode_home(table, tier, ino);
    struct inode *removed = NULL;
    for (uint64_t n = 0; n + 1 < table->slot_count; n++) {
        struct inode *slot = &table->slots[i];
        uint64_t ino_seen = inode_load(slot);
        if (ino_seen == ino && tier_of(slot) == tier)
            return slot;
        if (ino_seen == INODE_FREE)
            return removed ? removed : slot;
        if (ino_seen == INODE_REMOVED && !removed)
            removed = slot;
        i = i + 1 == table->slot_count ? 0 : i + 1;
    }
    return removed;
}

struct found {
    int64_t slot; /* -1: none */
    uint32_t file;
};

/* find_slot - returns the slot of an inode, and the File that was stored with it: the writer may
 * change the slot meanwhile. */
static struct found find_slot(const struct inodes *table, uint32_t tier, uint64_t ino)
{
    uint64_t i = inode_home(table, tier, ino);
    for (uint64_t n = 0; n < table->slot_count; n++) {
        const struct inode *slot = &table->slots[i];
        uint64_t ino_seen = inode_load(slot);
        if (ino_seen == INODE_FREE)
            break;
        if (ino_seen == ino) {
            const struct inode seen = {.file = slot->file, .tier = tier_of(slot)};
            atomic_thread_fence(memory_order_acquire); /* read before the second look */
            if (seen.tier == tier && inode_load(slot) == ino)
                return (struct found){.slot = (int64_t)i, .file = seen.file};
        }
        i = i + 1 == table->slot_count ? 0 : i + 1;
    }
    return (struct found){.slot = -1};
}

/* replica_find - returns the File whose Replica has this inode, or -1. */
int64_t replica_find(const struct inodes *table, uint32_t tier, uint64_t ino)
{
    const struct found found = find_slot(table, tier, ino);
    return found.slot < 0 ? -1 : (int64_t)found.file;
}

/* free_removed - frees the removed slots before a free slot, so that probes end
 * earlier. */
static void free_removed(struct inodes *table, uint64_t i)
{
    uint64_t last = table->slot_count - 1;
    if (inode_load(&table->slots[i == last ? 0 : i + 1]) != INODE_FREE)
        return;
    for (; inode_load(&table->slots[i]) == INODE_REMOVED; i = i ? i - 1 : last)
        inode_store(&table->slots[i], INODE_FREE);
}

static void remove_slot(struct inodes *table, struct inode *slot)
{
    table->used--;
    table->kept -= (slot->tier & INODE_KEPT) != 0;
    inode_store(slot, INODE_REMOVED);
}

/* make_room - removes kept inodes, roughly the oldest first, from a crowded table. */
static void make_room(struct inodes *table)
{
    while (table->kept &&
           table->used >= table->slot_count - table->slot_count / CROWDED_PART) {
        uint64_t i = table->hand;
        struct inode *slot = &table->slots[i];
        table->hand = i + 1 == table->slot_count ? 0 : i + 1;
        if (inode_load(slot) <= INODE_REMOVED || !(slot->tier & INODE_KEPT))
            continue;
        remove_slot(table, slot);
        free_removed(table, i);
    }
}

/* replica_insert - maps (tier, ino) to a File. -ENOSPC: the table is full. */
int replica_insert(struct inodes *table, uint32_t tier, uint64_t ino, uint32_t file)
{
    make_room(table);
    struct inode *slot = inode_place(table, tier, ino);
    if (!slot)
        return -ENOSPC;
    if (inode_load(slot) == ino)
        remove_slot(table, slot); /* look-ups must not see a half-written slot */
    slot->file = file;
    slot->tier = tier;
    inode_store(slot, ino);
    table->used++;
    return 0;
}

/* replica_remove - removes an inode whose file is about to be unlinked; its slot stays
 * occupied as long as probes must continue behind it. */
void replica_remove(struct inodes *table, uint32_t tier, uint64_t ino)
{
    int64_t i = find_slot(table, tier, ino).slot;
    if (i < 0)
        return;
    remove_slot(table, &table->slots[i]);
    free_removed(table, (uint64_t)i);
}

/* replica_keep - keeps the inode of a removed Replica, of which programs may have
 * descriptors, until its slot is needed. */
void replica_keep(struct inodes *table, uint32_t tier, uint64_t ino)
{
    int64_t i = find_slot(table, tier, ino).slot;
    if (i < 0 || (table->slots[i].tier & INODE_KEPT))
        return;
    table->slots[i].tier |= INODE_KEPT;
    table->kept++;
}
