/* shuffle.h - groups the bytes of numbers: all first bytes, then all second ones, and so
 * on. Neighbouring numbers of an array have similar high bytes, which then form runs that
 * compress (the filter of HDF5 and Blosc; `monarch codecs` measures the gain). */
#ifndef MONARCH_SHUFFLE_H
#define MONARCH_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

void shuffle_bytes(const uint8_t *bytes, size_t n, uint32_t element, uint8_t *out);
void unshuffle_bytes(const uint8_t *shuffled, size_t n, uint32_t element, uint8_t *out);

#endif
