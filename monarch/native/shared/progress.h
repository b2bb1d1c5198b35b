/* progress.h - the progress of a Transfer, as waiting programs see it. */
#ifndef MONARCH_PROGRESS_H
#define MONARCH_PROGRESS_H

#include <stdatomic.h>

#include "layout.h"

/* progress_in - returns the progress of a File, or 0 if the word holds that of another File:
 * Files share the words. */
static inline uint32_t progress_in(uint64_t word, uint64_t file)
{
    return word >> 32 == file + 1 ? (uint32_t)word : 0;
}

/* progress_load - returns a number that changes while the Transfer of a File progresses, or 0 if it
 * is unknown. */
static inline uint32_t progress_load(const struct requests *r, uint64_t file)
{
    return progress_in(
        atomic_load_explicit((_Atomic uint64_t *)&r->progress[file % WAITER_COUNTS],
                             memory_order_relaxed),
        file);
}

/* progress_store - stores the number for progress_load(); 0: the Transfer waits for something. */
static inline void progress_store(struct requests *r, uint64_t file, uint32_t progress)
{
    atomic_store_explicit((_Atomic uint64_t *)&r->progress[file % WAITER_COUNTS],
                          (file + 1) << 32 | progress, memory_order_relaxed);
}

enum {
    PROGRESS_LOOKS = 1, /* other jobs are asked for the File, then the origin */
    PROGRESS_BEGUN,     /* the origin is asked: other jobs wait for the File */
};

/* progress_of - returns the number to store when so many bytes of a File are present. */
static inline uint32_t progress_of(uint64_t bytes)
{
    return (uint32_t)(bytes / CHUNK_BYTES) + PROGRESS_BEGUN + 1;
}

/* progress_at - returns the number to store when a File in pieces is read up to a Page or Block. */
static inline uint32_t progress_at(uint32_t end)
{
    return end + PROGRESS_BEGUN + 1;
}

#endif
