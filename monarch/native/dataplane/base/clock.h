/* clock.h - the clocks of the data plane. */
#ifndef MONARCH_CLOCK_H
#define MONARCH_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SECOND_NS 1000000000ull
#define MS_NS (SECOND_NS / 1000)

/* clock_ns - returns CLOCK_MONOTONIC in ns; all processes of a node share this clock. */
static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* clock_cpu_ns - returns the processor time of this thread in ns. */
static inline uint64_t clock_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS),
                             .tv_nsec = (long)(ns % SECOND_NS)};
}

#endif
