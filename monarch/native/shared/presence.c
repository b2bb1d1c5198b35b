/* presence.c - finds a large File and its words in the flags segment, and packs requests for
 * Blocks into the word of a slot. */
#include "presence.h"

#include <stddef.h>

static const void *at(const struct flags *flags, uint64_t offset)
{
    return (const char *)flags + offset;
}

/* presence_of - NULL: the job has no File too large to wait for, or the segment is not
 * what it should be. */
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
    uint64_t words = ((const uint64_t *)at(flags, p->first))[p->count];
    return words < end && p->words + words * sizeof(uint32_t) <= end &&
                   p->places + words <= end
               ? p
               : NULL;
}

/* presence_find - the number of a File among the large ones, or -1. */
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

/* presence_file - the File of a number below the count of large ones. */
uint32_t presence_file(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return ((const uint32_t *)at(flags, p->files))[large];
}

/* presence_part - what there is of a large File. */
struct part *presence_part(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    return (struct part *)(uintptr_t)at(flags, p->parts) + large;
}

/* presence_words - the words of the Extents of a large File. */
_Atomic uint32_t *presence_words(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    uint64_t first = ((const uint64_t *)at(flags, p->first))[large];
    return (_Atomic uint32_t *)(uintptr_t)at(flags, p->words) + first;
}

/* presence_places - where its Extents are. */
_Atomic uint8_t *presence_places(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    uint64_t first = ((const uint64_t *)at(flags, p->first))[large];
    return (_Atomic uint8_t *)(uintptr_t)at(flags, p->places) + first;
}

/* presence_packed - which of its Extents are packed. */
_Atomic uint8_t *presence_packed(const struct flags *flags, uint32_t large)
{
    const struct presence *p = at(flags, flags->presence);
    uint64_t first = ((const uint64_t *)at(flags, p->first))[large];
    return (_Atomic uint8_t *)(uintptr_t)at(flags, p->packed) + first;
}

/* presence_extent_name - makes the name of a Replica, in a buffer of EXTENT_NAME_BYTES + 1,
 * that of the file of one Extent. */
void presence_extent_name(uint32_t extent, char *name)
{
    char *at = name + REPLICA_NAME_BYTES;
    *at++ = '.';
    for (int shift = 28; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[extent >> shift & 15];
    *at = 0;
}

/* presence_request - the word of a slot that asks for Blocks. */
uint64_t presence_request(struct block_range range)
{
    return REQUEST_BLOCKS |
           (uint64_t)range.large << (REQUEST_FIRST_BITS + REQUEST_COUNT_BITS) |
           (uint64_t)range.first << REQUEST_COUNT_BITS | range.count;
}

/* presence_range - what such a word asks for. */
struct block_range presence_range(uint64_t request)
{
    return (struct block_range){
        .large = (uint32_t)(request >> (REQUEST_FIRST_BITS + REQUEST_COUNT_BITS)) &
                 ((1u << REQUEST_FILE_BITS) - 1),
        .first = (uint32_t)(request >> REQUEST_COUNT_BITS) &
                 ((1u << REQUEST_FIRST_BITS) - 1),
        .count = (uint32_t)request & REQUEST_COUNT_MAX,
    };
}
