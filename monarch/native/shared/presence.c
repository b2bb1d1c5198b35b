/* presence.c - finds a large File and its words in the flags segment, and packs requests for
 * Pages into the word of a slot. */
#include "presence.h"

#include <stddef.h>

static const void *at(const struct flags *flags, uint64_t offset)
{
    return (const char *)flags + offset;
}

/* presence_of - returns the presence in the flags; NULL: the job has no File too large to wait for,
 * or the segment is malformed. */
const struct presence *presence_of(const struct flags *flags)
{
    uint64_t end = flags->seg.length;
    if (!flags->presence || flags->presence + sizeof(struct presence) > end)
        return NULL;
    const struct presence *p = at(flags, flags->presence);
    uint64_t first = p->first + (p->count + 1) * sizeof(uint64_t);
    if (p->count >> REQUEST_FILE_BITS || first > end ||
        p->files + p->count * sizeof(uint32_t) > end ||
        p->parts + p->count * sizeof(struct part) > end)
        return NULL;
    uint64_t extents = ((const uint64_t *)at(flags, p->first))[p->count];
    uint64_t words = extents * EXTENT_BLOCKS * sizeof(uint64_t);
    return extents < end && p->words + words <= end &&
                   p->changes + extents * sizeof(uint32_t) <= end &&
                   p->places + extents <= end
               ? p
               : NULL;
}

/* presence_find - returns the number of a File among the large ones, or -1. */
int64_t presence_find(const struct flags *flags, uint64_t file)
{
    const struct presence *p = presence_of(flags);
    uint64_t low = 0, high = p ? p->count : 0;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint32_t found = presence_file(flags, (uint32_t)middle);
        if (found == file)
            return (int64_t)middle;
        if (found < file)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* presence_file - returns the File of a number below the count of large ones. */
uint32_t presence_file(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return ((const uint32_t *)at(flags, p->files))[large];
}

/* presence_part - returns the struct part of a large File. */
struct part *presence_part(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return (struct part *)(uintptr_t)at(flags, p->parts) + large;
}

static uint64_t first_extent(const struct flags *flags, const struct presence *p,
                             uint32_t large)
{
    return ((const uint64_t *)at(flags, p->first))[large];
}

/* presence_words - returns the words of the Blocks of a large File. */
_Atomic uint64_t *presence_words(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return (_Atomic uint64_t *)(uintptr_t)at(flags, p->words) +
           first_extent(flags, p, large) * EXTENT_BLOCKS;
}

/* presence_changes - returns the change counters of its Extents. */
_Atomic uint32_t *presence_changes(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return (_Atomic uint32_t *)(uintptr_t)at(flags, p->changes) +
           first_extent(flags, p, large);
}

/* presence_places - returns the places of its Extents. */
_Atomic uint8_t *presence_places(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return (_Atomic uint8_t *)(uintptr_t)at(flags, p->places) +
           first_extent(flags, p, large);
}

/* presence_packed - returns the packed Tiers of its Extents. */
_Atomic uint8_t *presence_packed(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return (_Atomic uint8_t *)(uintptr_t)at(flags, p->packed) +
           first_extent(flags, p, large);
}

/* presence_extent_name - extends the name of a Replica, in a buffer of EXTENT_NAME_BYTES + 1, to
 * that of the file of one Extent. */
void presence_extent_name(uint32_t extent, char *name)
{
    char *at = name + REPLICA_NAME_BYTES;
    *at++ = '.';
    for (int shift = 28; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[extent >> shift & 15];
    *at = 0;
}

/* presence_request - returns the word of a slot that requests Pages: the first REQUEST_COUNT_MAX of
 * a longer range. */
uint64_t presence_request(struct page_range range)
{
    uint32_t count = range.count < REQUEST_COUNT_MAX ? range.count : REQUEST_COUNT_MAX;
    return REQUEST_PAGES |
           (uint64_t)range.large << (REQUEST_FIRST_BITS + REQUEST_COUNT_BITS) |
           (uint64_t)range.first << REQUEST_COUNT_BITS | count;
}

/* presence_range - returns the Pages that such a word requests. */
struct page_range presence_range(uint64_t request)
{
    return (struct page_range){
        .large = (uint32_t)(request >> (REQUEST_FIRST_BITS + REQUEST_COUNT_BITS)) &
                 ((1u << REQUEST_FILE_BITS) - 1),
        .first = (uint32_t)(request >> REQUEST_COUNT_BITS),
        .count = (uint32_t)request & REQUEST_COUNT_MAX,
    };
}
