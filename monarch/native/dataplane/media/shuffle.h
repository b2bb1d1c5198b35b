/* shuffle.h - groups the bytes of numbers: all first bytes, then all second ones, and so
 * on. Neighbouring numbers of an array are alike in their high bytes, which then stand in
 * runs that compress (the filter of HDF5 and Blosc; numbers by measurement:
 * `monarch codecs`). */
#ifndef MONARCH_SHUFFLE_H
#define MONARCH_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

void shuffle_bytes(const uint8_t *bytes, size_t n, uint32_t element, uint8_t *out);
void unshuffle_bytes(const uint8_t *shuffled, size_t n, uint32_t element, uint8_t *out);

#endif
