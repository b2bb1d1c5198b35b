/* large_replica.h - the Replica of a large File, as it was looked up. */
#ifndef MONARCH_LARGE_REPLICA_H
#define MONARCH_LARGE_REPLICA_H

#include "shim/serving/large_reads.h"

struct replica { /* that was looked up for a range */
    uint32_t word;
    uint64_t part; /* 0: it is whole */
    uint32_t pieces;
    uint8_t place; /* of the range, where it is not whole */
};

bool replica_ready(const struct large *l);
bool replica_there(const struct large *l, const struct page_range *range,
                   struct replica *r);
bool replica_await(const struct large *l, const struct page_range *range,
                   struct replica *r);
bool replica_still(const struct large *l, const struct replica *r);
int replica_open(const struct large *l, uint8_t place, uint32_t extent);

#endif
