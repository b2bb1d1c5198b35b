/* scratch.c - a few pieces for all threads, and a mapping where they are all taken. They
 * are not thread-local: libc takes that memory out of each thread's stack. */
#include "scratch.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "sys.h"

enum { PIECES = 64, MAPPING_BYTES = 4096 };

_Static_assert(PATH_BYTES_MAX + 0 <= MAPPING_BYTES + 0, "a piece fits into a page");

/* What a fork, or a jump out of a signal handler, has left taken stays so. */
static _Atomic uint64_t taken; /* one bit per piece */
static _Alignas(16) char pieces[PIECES][PATH_BYTES_MAX];

/* scratch_take - PATH_BYTES_MAX bytes, or NULL. */
char *scratch_take(void)
{
    uint64_t seen = atomic_load_explicit(&taken, memory_order_relaxed);
    while (~seen) {
        uint64_t lowest = ~seen & (seen + 1);
        if (atomic_compare_exchange_weak_explicit(&taken, &seen, seen | lowest,
                                                  memory_order_acquire,
                                                  memory_order_relaxed))
            return pieces[__builtin_ctzll(lowest)];
    }
    long at = sys_call(SYS_mmap, 0, MAPPING_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return at < 0 && at >= -4095 ? NULL : (char *)at;
}

/* scratch_give - takes a piece back. */
void scratch_give(char *piece)
{
    uintptr_t first = (uintptr_t)pieces, at = (uintptr_t)piece;
    if (at >= first && at < first + sizeof(pieces))
        atomic_fetch_and_explicit(&taken,
                                  ~((uint64_t)1 << (at - first) / PATH_BYTES_MAX),
                                  memory_order_release);
    else
        sys_call(SYS_munmap, (long)piece, MAPPING_BYTES, 0, 0, 0);
}
