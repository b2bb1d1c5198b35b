/* shuffle.c - see shuffle.h. Numbers are taken in runs that stay in the first cache, and
 * with a constant size of an element the compiler makes vector code of the inner loop. */
#include "dataplane/media/shuffle.h"

#include <string.h>

enum { RUN = 2048 }; /* numbers */

/* -O2 makes no vector code of such loops in all versions of GCC; clang's does. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORIZED __attribute__((optimize("O3")))
#else
#define VECTORIZED
#endif

__attribute__((always_inline)) static inline void spread(const uint8_t *restrict in,
                                                         size_t count, size_t stride,
                                                         uint32_t element,
                                                         uint8_t *restrict out)
{
    for (uint32_t b = 0; b < element; b++)
        for (size_t i = 0; i < count; i++)
            out[b * stride + i] = in[i * element + b];
}

__attribute__((always_inline)) static inline void gather(const uint8_t *restrict in,
                                                         size_t count, size_t stride,
                                                         uint32_t element,
                                                         uint8_t *restrict out)
{
    for (size_t i = 0; i < count; i++)
        for (uint32_t b = 0; b < element; b++)
            out[i * element + b] = in[b * stride + i];
}

VECTORIZED static void spread_run(const uint8_t *in, size_t count, size_t stride,
                                  uint32_t element, uint8_t *out)
{
    switch (element) {
    case 2:
        spread(in, count, stride, 2, out);
        break;
    case 4:
        spread(in, count, stride, 4, out);
        break;
    case 8:
        spread(in, count, stride, 8, out);
        break;
    default:
        spread(in, count, stride, element, out);
    }
}

VECTORIZED static void gather_run(const uint8_t *in, size_t count, size_t stride,
                                  uint32_t element, uint8_t *out)
{
    switch (element) {
    case 2:
        gather(in, count, stride, 2, out);
        break;
    case 4:
        gather(in, count, stride, 4, out);
        break;
    case 8:
        gather(in, count, stride, 8, out);
        break;
    default:
        gather(in, count, stride, element, out);
    }
}

/* shuffle_bytes - what is left behind whole elements stays as it is, at the end. */
void shuffle_bytes(const uint8_t *bytes, size_t n, uint32_t element, uint8_t *out)
{
    size_t count = n / element, whole = count * element;
    for (size_t at = 0; at < count; at += RUN) {
        size_t some = count - at < RUN ? count - at : RUN;
        spread_run(bytes + at * element, some, count, element, out + at);
    }
    memcpy(out + whole, bytes + whole, n - whole);
}

/* unshuffle_bytes - the reverse. */
void unshuffle_bytes(const uint8_t *shuffled, size_t n, uint32_t element, uint8_t *out)
{
    size_t count = n / element, whole = count * element;
    for (size_t at = 0; at < count; at += RUN) {
        size_t some = count - at < RUN ? count - at : RUN;
        gather_run(shuffled + at, some, count, element, out + at * element);
    }
    memcpy(out + whole, shuffled + whole, n - whole);
}
