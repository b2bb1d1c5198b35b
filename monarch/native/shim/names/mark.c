/* mark.c - sets the marks of Files, directories and roots: by number, route or identity. */
#include "shim/names/mark.h"

#include <string.h>

#include "shim/base/process.h"
#include "shim/base/sys.h"

static void set(const struct segments *seg, uint8_t *byte, uint8_t bits)
{
    _Atomic uint8_t *mark = (_Atomic uint8_t *)byte;
    if ((atomic_load_explicit(mark, memory_order_relaxed) & bits) == bits)
        return; /* for good */
    uint8_t before = atomic_fetch_or_explicit(mark, bits, memory_order_release);
    atomic_store_explicit((_Atomic uint32_t *)&seg->flags->marked, 1,
                          memory_order_release);
    count(COUNTER_mutations, !before);
}

/* bits_of - returns the bits of a mark for a change of a File. */
static uint8_t bits_of(enum change change)
{
    if (change == CHANGE_BYTES)
        return MARKED | MARKED_BYTES;
    return change == CHANGE_NAME ? MARKED | MARKED_NAME : MARKED;
}

static void mark_number(const struct segments *seg, uint64_t number, uint8_t bits)
{
    if (number < seg->flags->count)
        set(seg, &seg->flags->written[number], bits);
}

/* mark_root - marks a whole root: it is read from the origin from now on. */
void mark_root(const struct segments *seg, uint32_t root, uint8_t bits)
{
    set(seg, &seg->flags->roots[root], bits);
    segments_settle(seg);
}

/* mark_file - marks a File by its number in the job. */
void mark_file(const struct segments *seg, uint64_t file, enum change change)
{
    mark_number(seg, file, bits_of(change));
}

/* kinds_of - returns the kinds of a change for the table of an outline. */
static uint32_t kinds_of(enum change change)
{
    switch (change) {
    case CHANGE_BYTES:
        return CHANGED_BYTES;
    case CHANGE_HINT: /* changed bytes are marked by the identity */
    case CHANGE_CREATE:
        return 0;
    case CHANGE_RIGHTS:
        return CHANGED_RIGHTS;
    case CHANGE_TIMES:
        return CHANGED_TIMES;
    default:
        return CHANGED_NAME;
    }
}

/* keep - adds a change to the table of an outline, for the marks of the future Catalog. If the
 * table is full, the roots that the file may lie below pass through. */
static void keep(const struct segments *seg, const struct change_seen *seen)
{
    if (!changes_add(seg->changes, seen))
        for (uint32_t i = 0; i < seg->catalog->root_count; i++)
            if (changes_near(seg->catalog, i, seen->dev) || (seen->below >> i & 1))
                mark_root(seg, i, MARKED_ALL);
    segments_settle(seg);
}

/* passes - the root passes through, whatever else changes below it. */
static bool passes(const struct segments *seg, uint32_t root)
{
    return atomic_load_explicit((_Atomic uint8_t *)&seg->flags->roots[root],
                                memory_order_relaxed) == MARKED_ALL;
}

/* keep_object - does the same for a file that may lie below a root by its device. */
static void keep_object(const struct segments *seg, const struct stat *st,
                        uint32_t kinds)
{
    bool near = false;
    for (uint32_t i = 0; i < seg->catalog->root_count; i++)
        near = near || (changes_near(seg->catalog, i, st->st_dev) && !passes(seg, i));
    if (near && kinds)
        keep(seg, &(struct change_seen){st->st_dev, st->st_ino, 0, kinds});
}

/* mark_below - keeps a change of a file that lies below this root by its path, which the outline
 * knows, but may have another identity in the Catalog. */
void mark_below(const struct segments *seg, uint32_t root, const struct stat *st,
                enum change change)
{
    if (seg->changes && kinds_of(change))
        keep(seg, &(struct change_seen){st->st_dev, st->st_ino, (uint64_t)1 << root,
                                        kinds_of(change)});
}

/* mark_freed_object - keeps that a file has lost its last name before the Catalog exists. */
void mark_freed_object(const struct segments *seg, const struct stat *st)
{
    keep_object(seg, st, CHANGED_FREED);
}

/* mark_freed - marks a File that has lost its last name, and its inode number: other files may have
 * that. */
void mark_freed(const struct segments *seg, uint64_t file)
{
    mark_number(seg, file, MARKED | MARKED_FREED);
}

/* mark_of - returns the bits of all known changes of a File. */
uint8_t mark_of(const struct segments *seg, uint32_t root, uint64_t file)
{
    if (file >= seg->flags->count)
        return MARKED_ALL;
    return atomic_load_explicit((_Atomic uint8_t *)&seg->flags->roots[root],
                                memory_order_acquire) |
           atomic_load_explicit((_Atomic uint8_t *)&seg->flags->written[file],
                                memory_order_acquire);
}

/* mark_any - something in the job is marked, or was by programs of an earlier agent. */
bool mark_any(const struct segments *seg)
{
    return atomic_load_explicit((_Atomic uint32_t *)&seg->flags->marked,
                                memory_order_acquire) ||
           segments_superseded(seg) || seg->before;
}

/* mark_root_seen - this whole root passes through. */
bool mark_root_seen(const struct segments *seg, uint32_t root)
{
    return atomic_load_explicit((_Atomic uint8_t *)&seg->flags->roots[root],
                                memory_order_acquire);
}

/* mark_seen - the Entry, or its whole root, is marked: the origin must answer. */
bool mark_seen(const struct segments *seg, uint32_t root, const struct index *ix,
               const struct entry *e)
{
    const struct root *at = &seg->catalog->roots[root];
    bool directory = S_ISDIR(index_attr(ix, e)->mode);
    uint64_t number = directory ? (uint64_t)at->dir_base + e->file : file_number(at, e);
    if (number >= seg->flags->count)
        return true;
    return mark_root_seen(seg, root) ||
           atomic_load_explicit((_Atomic uint8_t *)&seg->flags->written[number],
                                memory_order_acquire);
}

/* mark_parent - marks the directory of the routed path: a name in it is added or removed. */
static void mark_parent(const struct segments *seg, const struct route *r)
{
    size_t n = r->rel_bytes;
    while (n > 0 && r->rel[n - 1] != '/')
        n--;
    int64_t parent = r->rel_bytes ? index_find(r->ix, r->rel, n ? n - 1 : 0) : -1;
    if (parent >= 0 && index_entry(r->ix, parent)->file != NONE32)
        mark_number(seg,
                    (uint64_t)seg->catalog->roots[r->root].dir_base +
                        index_entry(r->ix, parent)->file,
                    MARKED);
}

/* mark_entry - marks a File by its number; for a directory that is no longer the same, marks its
 * whole root. */
static void mark_entry(const struct segments *seg, uint32_t number,
                       const struct entry *e, enum change change, bool follow)
{
    const struct root *root = &seg->catalog->roots[number];
    const struct index *ix = segments_index(seg, number);
    bool link = S_ISLNK(index_attr(ix, e)->mode);
    if (link && e->target == NONE32)
        return;
    if (link)
        e = index_entry(ix, e->target);
    bool directory = S_ISDIR(index_attr(ix, e)->mode);
    if (!directory && e->file != NONE32)
        mark_number(seg, file_number(root, e), bits_of(change));
    if (!directory || change == CHANGE_BYTES || change == CHANGE_HINT)
        return;
    if (change != CHANGE_TIMES || (link && !follow))
        mark_root(seg, number, MARKED | MARKED_NAME);
    else if (e->file != NONE32)
        mark_number(seg, (uint64_t)root->dir_base + e->file, MARKED);
}

/* mark_route - marks the Entry of a routed path, but not its bytes: a new file may have the name by
 * now. */
void mark_route(const struct segments *seg, const struct route *r, enum where where,
                enum change change, bool follow)
{
    if (where == ROUTE_OUTSIDE) /* the route is not filled in */
        return;
    if (where == ROUTE_FOUND && change != CHANGE_CREATE)
        mark_entry(seg, r->root, route_entry(r),
                   change == CHANGE_BYTES ? CHANGE_HINT : change, follow);
    if (where == ROUTE_UNKNOWN ? change == CHANGE_CREATE || change == CHANGE_NAME
                               : change == CHANGE_NAME)
        mark_parent(seg, r);
}

/* mark_object - marks all Entries with this identity; false: the Catalog has none. */
bool mark_object(const struct segments *seg, const struct stat *st, enum change change)
{
    bool known = false;
    if (seg->changes) {
        keep_object(seg, st, kinds_of(change));
        return false; /* not known yet */
    }
    for (uint32_t i = 0; i < seg->catalog->root_count; i++) {
        const struct index *ix = segments_index(seg, i);
        int64_t found = index_find_inode(ix, st->st_dev, st->st_ino);
        if (found < 0)
            continue;
        mark_entry(seg, i, index_entry(ix, (uint32_t)found), change, false);
        known = true;
    }
    return known;
}
