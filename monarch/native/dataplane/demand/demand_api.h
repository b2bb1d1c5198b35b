/* demand_api.h - fill and hints, as Python orders them. */
#ifndef MONARCH_DEMAND_API_H
#define MONARCH_DEMAND_API_H

#include <stddef.h>
#include <stdint.h>

#include "dataplane/base/export.h"

/* Files in the order of background fill; borrowed until the next. */
struct monarch_fill {
    const uint32_t *to_read, *to_fetch; /* from the origin, and from peers */
    uint64_t read_count, fetch_count;
};

enum { HINT_ORDERS_MAX = 256 }; /* of different programs at once */

struct monarch_hint_tally {
    uint64_t left;                     /* hints not handled yet */
    uint64_t unopened, unopened_bytes; /* Files in the Pool, to be opened */
    uint64_t given_up_files;           /* read ahead, and not opened in their turn */
};

MONARCH_API uint64_t monarch_hint_files(const void *catalog, const char *paths,
                                        size_t bytes, uint32_t *files);

#endif
