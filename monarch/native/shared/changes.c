/* changes.c - the table of changes that programs make before the Catalog exists: filled without a
 * lock by every process of the job, and turned into marks once the Catalog exists.
 *
 * A scan may have seen the state before or after a change, so a file that has changed since the
 * first program started is never served. No change is lost between the table and the marks:
 *
 *   a process  puts the change into the table, then reads requests.catalog
 *   the agent  sets that to CATALOG_SETTLING, then turns the table into marks, and only
 *              then sets it to CATALOG_SERVED: from now on processes serve
 *
 * All of these are sequentially consistent: either the agent finds the change in the table, or the
 * process reads another value than CATALOG_NONE and turns the table into marks itself, before the
 * call that changes something returns to the program. */
#include "changes.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/stat.h>

#include "catalog.h"
#include "xxh3.h"

static uint32_t home_of(uint64_t dev, uint64_t ino)
{
    const uint64_t key[2] = {dev, ino};
    return (uint32_t)(xxh3(key, sizeof(key), 0) % CHANGES_MAX);
}

/* claim - claims a slot for this identity; false: another identity has it, or another process has
 * claimed it for this one and has not written the device yet. */
static bool claim(struct changed *slot, uint64_t dev, uint64_t ino)
{
    uint64_t seen = 0;
    if (atomic_compare_exchange_strong((_Atomic uint64_t *)&slot->ino, &seen, ino)) {
        atomic_store((_Atomic uint64_t *)&slot->dev, dev);
        return true;
    }
    return seen == ino && atomic_load((_Atomic uint64_t *)&slot->dev) == dev;
}

/* changes_add - records a change, once for each file or directory, however often it changes. False:
 * the table is full. */
bool changes_add(struct changes *table, const struct change_seen *seen)
{
    uint32_t at = home_of(seen->dev, seen->ino);
    for (uint32_t n = 0; n < CHANGES_MAX; n++, at = (at + 1) % CHANGES_MAX) {
        struct changed *slot = &table->slots[at];
        if (!claim(slot, seen->dev, seen->ino))
            continue;
        uint64_t below = atomic_fetch_or((_Atomic uint64_t *)&slot->below, seen->below);
        uint32_t kinds = atomic_fetch_or((_Atomic uint32_t *)&slot->kinds, seen->kinds);
        if ((below & seen->below) != seen->below ||
            (kinds & seen->kinds) != seen->kinds)
            atomic_fetch_add((_Atomic uint32_t *)&table->revision, 1);
        return true;
    }
    return false;
}

/* changes_near - a file on this device may lie below the root. A root that did not answer has
 * device 0: any file may. */
bool changes_near(const struct catalog *outline, uint32_t root, uint64_t dev)
{
    return outline->roots[root].dev == 0 || outline->roots[root].dev == dev;
}

static void mark(struct flags *flags, uint8_t *byte, uint8_t bits)
{
    atomic_fetch_or_explicit((_Atomic uint8_t *)byte, bits, memory_order_release);
    atomic_store_explicit((_Atomic uint32_t *)&flags->marked, 1, memory_order_release);
}

/* bits_of - returns the bits of a mark for the changes of a File. */
static uint8_t bits_of(uint32_t kinds)
{
    return (uint8_t)(MARKED | (kinds & CHANGED_BYTES ? MARKED_BYTES : 0) |
                     (kinds & CHANGED_NAME ? MARKED_NAME : 0) |
                     (kinds & CHANGED_FREED ? MARKED_FREED : 0));
}

struct target { /* one root of the Catalog, and the flags to be marked */
    const struct catalog *cat;
    struct flags *flags;
    uint32_t root;
};

static void mark_root(const struct target *t, uint8_t bits)
{
    mark(t->flags, &t->flags->roots[t->root], bits);
}

static void mark_number(const struct target *t, uint64_t number, uint8_t bits)
{
    if (number < t->flags->count)
        mark(t->flags, &t->flags->written[number], bits);
}

/* apply_entry - marks the File or directory that the Catalog has for the identity of a change; for
 * a directory that is no longer the same, marks its whole root. */
static void apply_entry(const struct target *t, const struct entry *e, uint32_t kinds)
{
    const struct root *root = &t->cat->roots[t->root];
    const struct index *ix = catalog_block(t->cat, t->root);
    bool link = S_ISLNK(index_attr(ix, e)->mode);
    if (link && e->target == NONE32)
        return;
    if (link)
        e = index_entry(ix, e->target);
    bool directory = S_ISDIR(index_attr(ix, e)->mode);
    if (directory &&
        (kinds & (CHANGED_NAME | CHANGED_RIGHTS | (link ? CHANGED_TIMES : 0))))
        mark_root(t, MARKED | MARKED_NAME);
    else if (directory && (kinds & CHANGED_TIMES) && e->file != NONE32)
        mark_number(t, (uint64_t)root->dir_base + e->file, MARKED);
    else if (!directory && e->file != NONE32)
        mark_number(t, file_number(root, e), bits_of(kinds));
}

/* apply_change - applies one change to a root. A file below a root with unstable inode numbers,
 * whose own is not in the Catalog, may be any of its Files: the whole root is marked. */
static void apply_change(const struct target *t, const struct changed *c)
{
    const struct index *ix = catalog_block(t->cat, t->root);
    uint64_t ino = atomic_load((_Atomic uint64_t *)(uintptr_t)&c->ino);
    if (!ino)
        return;
    uint64_t dev = atomic_load((_Atomic uint64_t *)(uintptr_t)&c->dev);
    uint64_t below = atomic_load((_Atomic uint64_t *)(uintptr_t)&c->below);
    uint32_t kinds = atomic_load((_Atomic uint32_t *)(uintptr_t)&c->kinds);
    if (!dev || !kinds)
        return;
    int64_t found = index_find_inode(ix, dev, ino);
    if (found >= 0)
        apply_entry(t, index_entry(ix, (uint32_t)found), kinds);
    else if (below >> t->root & 1)
        mark_root(t, MARKED_ALL);
}

/* changes_apply - carries the marks of roots, the mounts and the table from the flags of an outline
 * over to those of a Catalog. It may run repeatedly, and in several processes at once. */
void changes_apply(const struct catalog *outline, struct flags *from,
                   const struct catalog *cat, struct flags *to)
{
    const struct changes *table = changes_of(from);
    struct target t = {.cat = cat, .flags = to};
    if (!table)
        return;
    uint32_t mounts = atomic_exchange((_Atomic uint32_t *)&from->mounts, 0);
    atomic_fetch_add((_Atomic uint32_t *)&to->mounts, mounts);
    for (; t.root < cat->root_count && t.root < outline->root_count; t.root++) {
        uint8_t bits = atomic_load((_Atomic uint8_t *)&from->roots[t.root]);
        if (bits)
            mark_root(&t, bits);
        for (uint32_t i = 0; i < CHANGES_MAX; i++)
            apply_change(&t, &table->slots[i]);
    }
}
