/* publish.h - words in shared memory that other processes wait on. */
#ifndef MONARCH_PUBLISH_H
#define MONARCH_PUBLISH_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* publish_word - stores with release, so that who reads the word sees all that it
 * promises, and wakes every process that waits on it. */
static inline void publish_word(uint32_t *word, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
