/* simd.h - leaves the vector registers as code without AVX expects them. */
#ifndef MONARCH_SIMD_H
#define MONARCH_SIMD_H

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx"))) static inline void simd_clear_uppers(void)
{
    _mm256_zeroupper();
}

/* simd_settle - clears the upper halves, which OpenSSL's ChaCha20 leaves in use: our own
 * checksum would take six times as long. New threads take such registers over too. */
static inline void simd_settle(void)
{
    if (__builtin_cpu_supports("avx"))
        simd_clear_uppers();
}
#else
static inline void simd_settle(void)
{
}
#endif

#endif
