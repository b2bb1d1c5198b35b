/* lru.h - finds the least recently used Replicas of a Tier. */
#ifndef MONARCH_LRU_H
#define MONARCH_LRU_H

#include <stdint.h>

#include "dataplane/base/export.h"

struct monarch_lru_view {  /* the Files of a job; arrays by their numbers */
    const uint32_t *words; /* state words */
    const uint32_t *used;  /* the tick of the last use */
    uint64_t files;
    uint32_t tier, now; /* the Tier of the Replicas; the current tick */
};

struct monarch_lru_file {
    uint32_t file, age; /* ticks since it was used */
};

MONARCH_API uint32_t monarch_lru_oldest(const struct monarch_lru_view *view,
                                        struct monarch_lru_file *out, uint32_t max);

#endif
