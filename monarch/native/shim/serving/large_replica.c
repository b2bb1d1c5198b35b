/* large_replica.c - finds the file with a range of the Replica of a large File, which may still
 * fill, and checks that the bytes read there are right.
 */
#include "shim/serving/large_replica.h"

#include <string.h>

#include "shim/base/process.h"
#include "shim/base/sys.h"
#include "shim/names/mark.h"
#include "shim/names/wait.h"
#include "shim/serving/redirects.h"

/* look_up - finds the Replica of the File, if it exists. */
static bool look_up(const struct large *l, struct replica *out)
{
    const struct part *part = presence_part(l->seg->flags, l->large);
    uint32_t word = replica_load(l->seg->catalog, l->file);
    *out = (struct replica){.word = word, .place = (uint8_t)STATE_TIER(word)};
    if (STATE_OF(word) == REPLICA_READY)
        return out->place < l->seg->catalog->tier_count;
    out->part = part_load(part);
    out->pieces = part_pieces(part);
    return STATE_OF(word) == REPLICA_STAGING && (uint32_t)out->part == part_tag(word);
}

static uint8_t place_of(const struct large *l, uint32_t extent)
{
    const _Atomic uint8_t *places = presence_places(l->seg->flags, l->large);
    return atomic_load_explicit(&places[extent], memory_order_acquire);
}

/* holds - all Pages of a range are present, in one file. */
static bool holds(const struct large *l, const struct page_range *range,
                  struct replica *r)
{
    uint32_t first = range->first / EXTENT_PAGES;
    uint32_t last = (range->first + range->count - 1) / EXTENT_PAGES;
    r->place = place_of(l, first);
    if ((r->place & ~PLACE_FILE) >= l->seg->catalog->tier_count ||
        (first != last && (r->place & PLACE_FILE)) ||
        !pages_there(presence_words(l->seg->flags, l->large), range->first,
                     range->count))
        return false;
    for (uint32_t extent = first; extent <= last; extent++)
        if (place_of(l, extent) != r->place)
            return false;
    return true;
}

/* replica_still - the Replica is the one that was looked up, so the bytes read are right. */
bool replica_still(const struct large *l, const struct replica *r)
{
    const struct part *part = presence_part(l->seg->flags, l->large);
    uint32_t now = replica_load(l->seg->catalog, l->file);
    if ((now ^ r->word) & STATE_GENERATION || STATE_TIER(now) != STATE_TIER(r->word) ||
        mark_seen(l->seg, l->root, l->ix, l->entry))
        return false;
    if (STATE_OF(now) == REPLICA_READY) /* perhaps since then */
        return true;
    return STATE_OF(now) == REPLICA_STAGING && part_load(part) == r->part &&
           part_pieces(part) == r->pieces;
}

/* replica_open - opens the file with a place: all of the Replica, or one Extent. */
int replica_open(const struct large *l, uint8_t place, uint32_t extent)
{
    char path[STAGED_BYTES + EXTENT_NAME_BYTES - REPLICA_NAME_BYTES];
    const struct tier *tier = &l->seg->catalog->tiers[place & ~PLACE_FILE];
    uint64_t hash = index_hash(index_path(l->ix, l->entry), index_path_bytes(l->entry));
    char *name = path + tier->path_bytes + 1;
    memcpy(path, tier->path, tier->path_bytes);
    path[tier->path_bytes] = '/';
    replica_name(l->entry, l->seg->catalog->roots[l->root].path_hash, hash, name);
    name[REPLICA_NAME_BYTES] = 0;
    if (place & PLACE_FILE)
        presence_extent_name(extent, name);
    return sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
}

/* replica_ready - the File is whole. */
bool replica_ready(const struct large *l)
{
    return STATE_OF(replica_load(l->seg->catalog, l->file)) == REPLICA_READY;
}

/* await_missing - waits for missing Pages; false: they will not arrive. */
static bool await_missing(const struct large *l, const struct page_range *range)
{
    if (replica_ready(l))
        return true;
    return (place_of(l, range->first / EXTENT_PAGES) & ~PLACE_FILE) != PLACE_ORIGIN &&
           !process_borrowed() && wait_pages(l->seg, l->file, *range);
}

/* replica_there - finds the file with a range, if all of it is present. */
bool replica_there(const struct large *l, const struct page_range *range,
                   struct replica *r)
{
    return look_up(l, r) && (!r->part || holds(l, range, r));
}

/* replica_await - waits for the file with a range; false: the origin must answer. A Replica that
 * became READY between two looks does not show its Pages any more. */
bool replica_await(const struct large *l, const struct page_range *range,
                   struct replica *r)
{
    if (replica_there(l, range, r))
        return true;
    return await_missing(l, range) &&
           (replica_there(l, range, r) ||
            (replica_ready(l) && replica_there(l, range, r)));
}
