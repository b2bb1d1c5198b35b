/* seal.h - the MAC of an Extent, which only the nodes of the job can make or check. */
#ifndef MONARCH_SEAL_H
#define MONARCH_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "dataplane/base/export.h"

enum { SEAL_KEY_BYTES = 32, SEAL_NONCE_BYTES = 12, SEAL_TAG_BYTES = 16 };

struct monarch_seal { /* of an Extent: a MAC with the key of the job */
    uint8_t nonce[SEAL_NONCE_BYTES], tag[SEAL_TAG_BYTES];
};

MONARCH_API const char *monarch_seal_library(void);

struct sealer;  /* the key of the job, and contexts with it */
struct sealing; /* one seal in progress */

struct range_name { /* the bytes that a seal covers: Blocks of a File */
    uint32_t file, first;
    uint64_t bytes;
    uint64_t blocks; /* their number; higher bits: their packing, see wire.h */
};

int sealer_new(const uint8_t *key, uint64_t catalog_digest, struct sealer **out);
void sealer_free(struct sealer *s);

int seal_nonce(struct monarch_seal *seal);
int seal_begin(struct sealer *s, const struct range_name *name,
               const struct monarch_seal *seal, struct sealing **out);
int seal_add(struct sealing *g, const void *bytes, size_t n);
int seal_end(struct sealing **g, uint8_t tag[SEAL_TAG_BYTES]);
int seal_make(struct sealer *s, const struct range_name *name, const void *bytes,
              struct monarch_seal *seal);
void seal_drop(struct sealing **g);
bool seal_same(const uint8_t *a, const uint8_t *b);

#ifdef __x86_64__
__attribute__((target("avx"))) static inline void vector_registers_clear_uppers(void)
{
    _mm256_zeroupper();
}

/* vector_registers_reset - clears the upper halves of the vector registers, which
 * OpenSSL's ChaCha20 leaves in use and new threads inherit: xxh3() would take six times
 * as long. */
static inline void vector_registers_reset(void)
{
    if (__builtin_cpu_supports("avx"))
        vector_registers_clear_uppers();
}
#else
static inline void vector_registers_reset(void)
{
}
#endif

#endif
