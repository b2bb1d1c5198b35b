/* scratch.c - a few pieces for each thread, and a mapping where they are all taken: by a
 * hook that a signal has interrupted, or that a jump out of a handler has left. */
#include "scratch.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "sys.h"

enum { PIECES = 4, MAPPING_BYTES = 4096 };

_Static_assert(PATH_BYTES_MAX + 0 <= MAPPING_BYTES + 0, "a piece fits into a page");

/* A signal handler gives back all that it takes before the interrupted hook goes on, so
 * that plain loads and stores of `taken` are enough. */
static __thread struct {
    volatile uint32_t taken; /* one bit per piece */
    _Alignas(16) char piece[PIECES][PATH_BYTES_MAX];
} scratch;

/* scratch_take - PATH_BYTES_MAX bytes, or NULL. */
char *scratch_take(void)
{
    for (uint32_t i = 0; i < PIECES; i++) {
        if (scratch.taken & 1u << i)
            continue;
        scratch.taken |= 1u << i;
        return scratch.piece[i];
    }
    long at = sys_call(SYS_mmap, 0, MAPPING_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return at < 0 && at >= -4095 ? NULL : (char *)at;
}

/* scratch_give - takes a piece back. */
void scratch_give(char *piece)
{
    uintptr_t first = (uintptr_t)scratch.piece, at = (uintptr_t)piece;
    if (at >= first && at < first + sizeof(scratch.piece))
        scratch.taken &= ~(1u << (at - first) / PATH_BYTES_MAX);
    else
        sys_call(SYS_munmap, (long)piece, MAPPING_BYTES, 0, 0, 0);
}
