/* presence.h - which Pages of large Files are present, and the words by which programs request
 * others. */
#ifndef MONARCH_PRESENCE_H
#define MONARCH_PRESENCE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "layout.h"

/* A request for Pages, from its lowest bit: 11 bits for their number, 32 for the first one, 20
 * for the number of the large File; the highest bit is REQUEST_PAGES. */
#define REQUEST_PAGES (1ull << 63)

enum {
    REQUEST_COUNT_BITS = 11,
    REQUEST_FIRST_BITS = 32,
    REQUEST_FILE_BITS = 20,
};

#define REQUEST_COUNT_MAX ((1u << REQUEST_COUNT_BITS) - 1)

struct page_range { /* of a large File, by its number among these */
    uint32_t large, first, count;
};

uint64_t presence_request(struct page_range range);
struct page_range presence_range(uint64_t request);

const struct presence *presence_of(const struct flags *flags);
int64_t presence_find(const struct flags *flags, uint64_t file);
uint32_t presence_file(const struct flags *flags, uint32_t large);
struct part *presence_part(const struct flags *flags, uint32_t large);
_Atomic uint64_t *presence_words(const struct flags *flags, uint32_t large);
_Atomic uint32_t *presence_changes(const struct flags *flags, uint32_t large);
_Atomic uint8_t *presence_places(const struct flags *flags, uint32_t large);
_Atomic uint8_t *presence_packed(const struct flags *flags, uint32_t large);

/* Name of a file with one Extent: that of the Replica, a dot and the number of the Extent. */
enum { EXTENT_NAME_BYTES = REPLICA_NAME_BYTES + 1 + 8 };

void presence_extent_name(uint32_t extent, char *name);

/* extents_of - returns the number of Extents of a File; an empty File has one. */
static inline uint64_t extents_of(uint64_t size)
{
    return size ? (size + EXTENT_BYTES - 1) / EXTENT_BYTES : 1;
}

/* extent_bytes - returns the size of an Extent of a File. */
static inline uint64_t extent_bytes(uint64_t size, uint32_t extent)
{
    uint64_t left = size - (uint64_t)extent * EXTENT_BYTES;
    return left < EXTENT_BYTES ? left : EXTENT_BYTES;
}

/* blocks_bytes - returns the size of some Blocks of a File. */
static inline uint64_t blocks_bytes(uint64_t size, uint32_t first, uint32_t blocks)
{
    uint64_t left = size - (uint64_t)first * BLOCK_BYTES;
    uint64_t whole = (uint64_t)blocks * BLOCK_BYTES;
    return left < whole ? left : whole;
}

static inline uint32_t blocks_of(uint64_t size)
{
    return (uint32_t)((size + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

/* extent_blocks - returns the number of Blocks of an Extent; that of an empty File has one. */
static inline uint32_t extent_blocks(uint64_t size, uint32_t extent)
{
    return size ? blocks_of(extent_bytes(size, extent)) : 1;
}

/* pages_of - returns the number of Pages of a File. */
static inline uint32_t pages_of(uint64_t size)
{
    return (uint32_t)((size + PAGE_BYTES - 1) / PAGE_BYTES);
}

/* pages_bytes - returns the size of some Pages of a File. */
static inline uint64_t pages_bytes(uint64_t size, uint32_t first, uint32_t pages)
{
    uint64_t left = size - (uint64_t)first * PAGE_BYTES;
    uint64_t whole = (uint64_t)pages * PAGE_BYTES;
    return left < whole ? left : whole;
}

/* pages_mask - returns the bits of `count` Pages from `first` on in the word of their Block. */
static inline uint64_t pages_mask(uint32_t first, uint32_t count)
{
    uint64_t bits = count >= BLOCK_PAGES ? ~0ull : (1ull << count) - 1;
    return bits << first % BLOCK_PAGES;
}

/* pages_in_block - returns the number of Pages from `at` to `end` in the Block of the first. */
static inline uint32_t pages_in_block(uint32_t at, uint32_t end)
{
    uint32_t left = BLOCK_PAGES - at % BLOCK_PAGES;
    return end - at < left ? end - at : left;
}

/* pages_there - all of these Pages are present. */
static inline bool pages_there(const _Atomic uint64_t *words, uint32_t first,
                               uint32_t count)
{
    for (uint32_t n, at = first, end = first + count; at < end; at += n) {
        n = pages_in_block(at, end);
        uint64_t there = atomic_load_explicit(&words[at / BLOCK_PAGES],
                                              memory_order_acquire);
        if (~there & pages_mask(at, n))
            return false;
    }
    return true;
}

/* part_tag - returns the low half of struct part.replica for a state word. */
static inline uint32_t part_tag(uint32_t word)
{
    return (word & STATE_GENERATION) | 1u;
}

/* part_pieces - returns struct part.pieces. */
static inline uint32_t part_pieces(const struct part *part)
{
    return atomic_load_explicit((const _Atomic uint32_t *)&part->pieces,
                                memory_order_acquire);
}

static inline uint64_t part_load(const struct part *part)
{
    return atomic_load_explicit((const _Atomic uint64_t *)&part->replica,
                                memory_order_acquire);
}

#endif
