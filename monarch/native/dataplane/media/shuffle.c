/* shuffle.c - groups the bytes of numbers, see shuffle.h. It processes runs of numbers that fit
 * into the L1 cache; a constant element size lets the compiler vectorize the inner loop. */
#include "dataplane/media/shuffle.h"

#include <string.h>

enum { RUN = 2048 }; /* numbers */

/* Not every version of GCC vectorizes such loops at -O2; clang does. */
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

/* shuffle_bytes - groups the bytes of whole elements; bytes after them stay as they are. */
void shuffle_bytes(const uint8_t *bytes, size_t n, uint32_t element, uint8_t *out)
{
    size_t count = n / element, whole = count * element;
    for (size_t at = 0; at < count; at += RUN) {
        size_t some = count - at < RUN ? count - at : RUN;
        spread_run(bytes + at * element, some, count, element, out + at);
    }
    memcpy(out + whole, bytes + whole, n - whole);
}

/* unshuffle_bytes - reverts shuffle_bytes(). */
void unshuffle_bytes(const uint8_t *shuffled, size_t n, uint32_t element, uint8_t *out)
{
    size_t count = n / element, whole = count * element;
    for (size_t at = 0; at < count; at += RUN) {
        size_t some = count - at < RUN ? count - at : RUN;
        gather_run(shuffled + at, some, count, element, out + at * element);
    }
    memcpy(out + whole, shuffled + whole, n - whole);
}
