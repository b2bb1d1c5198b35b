/* read_through.h - small reads that the origin answers at once. */
#ifndef MONARCH_READ_THROUGH_H
#define MONARCH_READ_THROUGH_H

#include "shim/serving/large_reads.h"

/* Bytes of the longest read that does not wait: a wait of two wake-ups costs more. */
#define THROUGH_BYTES_MAX (16u << 10)

bool through_applies(const struct large *l, int fd, uint64_t at, uint64_t n);
long through_read(const struct large *l, int fd, const struct iovec *pieces, int count,
                  uint64_t at, uint64_t n);

#endif
