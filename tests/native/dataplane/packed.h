/* packed.h - a small job with a packed Tier and a Pool, for tests of frames. */
#ifndef TEST_PACKED_H
#define TEST_PACKED_H

#include <stdatomic.h>

#include "board.h"
#include "dataplane/api/engine.h"
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"

enum {
    FILES = 120,
    SIZE = 40000,
    LARGE = 2 * PIECE_BYTES + 777, /* three pieces */
    POOL_FILES = 16,
};
enum { TIER, POOL };

extern struct board *board;
extern struct table *table;
extern struct monarch_packing packing;
extern atomic_uint served, asked_in_vain; /* opens */

/* begin_job_with - sizes of FILES; NULL: all have SIZE. */
void begin_job_with(const uint64_t *sizes, uint64_t tier_bytes);
void begin_job(uint64_t tier_bytes);
void end_job(void);
void open_one(uint32_t file); /* as the Shim does: requests, waits, opens */
void fill_all(uint32_t *files);
void await_packed(void);
struct monarch_tally tally_now(void);

#endif
