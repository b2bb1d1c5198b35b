/* packed_seal.h - what the seal of a frame covers that one node sends to another. */
#ifndef MONARCH_PACKED_SEAL_H
#define MONARCH_PACKED_SEAL_H

#include "dataplane/media/seal.h"

/* packed_seal_name - no seal of an Extent or of Blocks has the same name. */
static inline struct extent_name packed_seal_name(uint32_t file, uint32_t packing,
                                                  uint64_t bytes)
{
    return (struct extent_name){file, packing, bytes, UINT64_MAX};
}

/* packed_blocks_name - the same of Blocks that are sent packed. */
static inline struct extent_name packed_blocks_name(uint32_t file, uint32_t first,
                                                    uint32_t blocks, uint32_t packing,
                                                    uint64_t bytes)
{
    return (struct extent_name){file, first, bytes,
                                1ull << 63 | (uint64_t)packing << 8 | blocks};
}

#endif
