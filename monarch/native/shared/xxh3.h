/* xxh3.h - the 64-bit XXH3 hash, for names, tables and checksums. */
#ifndef MONARCH_XXH3_H
#define MONARCH_XXH3_H

#include <stddef.h>
#include <stdint.h>

uint64_t xxh3(const void *bytes, size_t n, uint64_t seed);

#endif
