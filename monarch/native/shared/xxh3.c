/* xxh3.c - the 64-bit XXH3 hash, written from the public specification of its author
 * (doc/xxhash_spec.md of the xxHash project); tests compare it with the PyPI
 * package. */
#include "xxh3.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define P32_1 0x9E3779B1u
#define P32_2 0x85EBCA77u
#define P32_3 0xC2B2AE3Du
#define P64_1 0x9E3779B185EBCA87ull
#define P64_2 0xC2B2AE3D27D4EB4Full
#define P64_3 0x165667B19E3779F9ull
#define P64_4 0x85EBCA77C2B2AE63ull
#define P64_5 0x27D4EB2F165667C5ull
#define MIX_A 0x165667919E3779F9ull
#define MIX_B 0x9FB21C651E98DF25ull

enum { SECRET_BYTES = 192, STRIPE_BYTES = 64, BLOCK_STRIPES = 16, LANES = 8 };

static const uint8_t default_secret[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21,
    0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4,
    0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a,
    0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e,
    0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3,
    0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97,
    0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa,
    0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16,
    0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
    0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16,
    0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static uint64_t read64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint32_t read32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint64_t rotate(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t avalanche(uint64_t h)
{
    h ^= h >> 37;
    h *= MIX_A;
    return h ^ h >> 32;
}

/* avalanche64 - the finisher of the older XXH64, used for the shortest inputs. */
static uint64_t avalanche64(uint64_t h)
{
    h ^= h >> 33;
    h *= P64_2;
    h ^= h >> 29;
    h *= P64_3;
    return h ^ h >> 32;
}

static uint64_t hash_1to3(const uint8_t *p, size_t n, uint64_t seed)
{
    uint32_t joined = (uint32_t)p[0] << 16 | (uint32_t)p[n >> 1] << 24 | p[n - 1] |
                      (uint32_t)n << 8;
    uint64_t flip = (read32(default_secret) ^ read32(default_secret + 4)) + seed;
    return avalanche64(joined ^ flip);
}

static uint64_t hash_4to8(const uint8_t *p, size_t n, uint64_t seed)
{
    seed ^= (uint64_t)__builtin_bswap32((uint32_t)seed) << 32;
    uint64_t flip = (read64(default_secret + 8) ^ read64(default_secret + 16)) - seed;
    uint64_t h = (read32(p + n - 4) + ((uint64_t)read32(p) << 32)) ^ flip;
    h ^= rotate(h, 49) ^ rotate(h, 24);
    h *= MIX_B;
    h ^= (h >> 35) + n;
    h *= MIX_B;
    return h ^ h >> 28;
}

static uint64_t hash_9to16(const uint8_t *p, size_t n, uint64_t seed)
{
    uint64_t flip1 = (read64(default_secret + 24) ^ read64(default_secret + 32)) + seed;
    uint64_t flip2 = (read64(default_secret + 40) ^ read64(default_secret + 48)) - seed;
    uint64_t lo = read64(p) ^ flip1;
    uint64_t hi = read64(p + n - 8) ^ flip2;
    return avalanche(n + __builtin_bswap64(lo) + hi + fold(lo, hi));
}

static uint64_t mix16(const uint8_t *p, const uint8_t *secret, uint64_t seed)
{
    return fold(read64(p) ^ (read64(secret) + seed),
                read64(p + 8) ^ (read64(secret + 8) - seed));
}

static uint64_t hash_17to128(const uint8_t *p, size_t n, uint64_t seed)
{
    uint64_t acc = n * P64_1;
    for (size_t i = (n - 1) / 32 + 1; i-- > 0;) {
        acc += mix16(p + 16 * i, default_secret + 32 * i, seed);
        acc += mix16(p + n - 16 * (i + 1), default_secret + 32 * i + 16, seed);
    }
    return avalanche(acc);
}

static uint64_t hash_129to240(const uint8_t *p, size_t n, uint64_t seed)
{
    uint64_t acc = n * P64_1;
    size_t i;
    for (i = 0; i < 8; i++)
        acc += mix16(p + 16 * i, default_secret + 16 * i, seed);
    acc = avalanche(acc);
    for (; i < n / 16; i++)
        acc += mix16(p + 16 * i, default_secret + 16 * (i - 8) + 3, seed);
    acc += mix16(p + n - 16, default_secret + 136 - 17, seed);
    return avalanche(acc);
}

typedef uint64_t lanes __attribute__((vector_size(16))); /* two of the eight lanes */

enum { PAIRS = LANES / 2 };

static inline lanes load_lanes(const uint8_t *p)
{
    lanes v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* multiply_low - per lane, the product of the low 32 bits. Compilers do not find the
 * one instruction that does it, and without it the hash is six times slower. */
static inline lanes multiply_low(lanes a, lanes b)
{
#ifdef __SSE2__
    return (lanes)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

static inline void accumulate(lanes *acc, const uint8_t *p, const uint8_t *secret)
{
#pragma GCC unroll 4
    for (int i = 0; i < PAIRS; i++) {
        lanes v = load_lanes(p + 16 * i);
        lanes key = v ^ load_lanes(secret + 16 * i);
        lanes swapped = {v[1], v[0]};
        acc[i] += swapped + multiply_low(key, key >> 32);
    }
}

static inline void scramble(lanes *acc, const uint8_t *secret)
{
    const lanes prime = {P32_1, P32_1};
    for (int i = 0; i < PAIRS; i++) {
        lanes v = acc[i] ^ acc[i] >> 47 ^ load_lanes(secret + 16 * i);
        acc[i] = multiply_low(v, prime) + (multiply_low(v >> 32, prime) << 32);
    }
}

static void derive_secret(uint8_t out[SECRET_BYTES], uint64_t seed)
{
    for (int i = 0; i < SECRET_BYTES; i += 16) {
        uint64_t lo = read64(default_secret + i) + seed;
        uint64_t hi = read64(default_secret + i + 8) - seed;
        memcpy(out + i, &lo, sizeof(lo));
        memcpy(out + i + 8, &hi, sizeof(hi));
    }
}

static uint64_t merge(const lanes *acc, const uint8_t *secret, uint64_t start)
{
    uint64_t result = start;
    for (int i = 0; i < PAIRS; i++) {
        lanes v = acc[i] ^ load_lanes(secret + 16 * i);
        result += fold(v[0], v[1]);
    }
    return avalanche(result);
}

static uint64_t hash_long(const uint8_t *p, size_t n, const uint8_t *secret)
{
    lanes acc[PAIRS] = {{P32_3, P64_1}, {P64_2, P64_3}, {P64_4, P32_2}, {P64_5, P32_1}};
    const uint8_t *last_secret = secret + SECRET_BYTES - STRIPE_BYTES;
    size_t stripes = (n - 1) / STRIPE_BYTES;
    size_t whole = stripes / BLOCK_STRIPES * BLOCK_STRIPES;
    size_t i = 0;
    while (i < whole) {
        for (int s = 0; s < BLOCK_STRIPES; s++, i++)
            accumulate(acc, p + i * STRIPE_BYTES, secret + 8 * s);
        scramble(acc, last_secret);
    }
    for (; i < stripes; i++)
        accumulate(acc, p + i * STRIPE_BYTES, secret + 8 * (i - whole));
    accumulate(acc, p + n - STRIPE_BYTES, last_secret - 7);
    return merge(acc, secret + 11, n * P64_1);
}

/* xxh3 - hashes n bytes; the length chooses one of seven ways. */
uint64_t xxh3(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *p = bytes;
    uint8_t derived[SECRET_BYTES];
    if (n > 240) {
        if (seed == 0)
            return hash_long(p, n, default_secret);
        derive_secret(derived, seed);
        return hash_long(p, n, derived);
    }
    if (n > 128)
        return hash_129to240(p, n, seed);
    if (n > 16)
        return hash_17to128(p, n, seed);
    if (n > 8)
        return hash_9to16(p, n, seed);
    if (n >= 4)
        return hash_4to8(p, n, seed);
    if (n > 0)
        return hash_1to3(p, n, seed);
    return avalanche64(seed ^ read64(default_secret + 56) ^
                       read64(default_secret + 64));
}
