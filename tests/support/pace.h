/* pace.h - time that a server takes: per operation, per read, and for its bytes. */
#ifndef TEST_PACE_H
#define TEST_PACE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ull
#define BURST_NS 5000000ull /* maximum credit of an idle link */

static uint64_t link_free_ns; /* when the last reserved byte will have passed */
static pthread_mutex_t link_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned serving; /* operations that the server runs now */
static pthread_mutex_t server_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t server_free = PTHREAD_COND_INITIALIZER;
static atomic_uint reading; /* reads running now */

static uint64_t pace_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void pace_until(uint64_t ns)
{
    struct timespec at = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

static void pace_delay(uint64_t us)
{
    if (us)
        pace_until(pace_now_ns() + us * 1000);
}

/* pace_operation - runs one operation of so many us when it is its turn. */
static void pace_operation(uint64_t us, uint64_t parallel)
{
    if (!us)
        return;
    pthread_mutex_lock(&server_lock);
    while (parallel && serving >= parallel)
        pthread_cond_wait(&server_free, &server_lock);
    serving++;
    pthread_mutex_unlock(&server_lock);
    pace_delay(us);
    pthread_mutex_lock(&server_lock);
    serving--;
    pthread_cond_signal(&server_free);
    pthread_mutex_unlock(&server_lock);
}

/* pace_read - delays a read: more than `thrash` at once slow each other down; stores in
 * `most` the maximum at once. */
static void pace_read(uint64_t us, uint64_t thrash, atomic_ullong *most)
{
    unsigned long long beside = atomic_fetch_add(&reading, 1) + 1, known = *most;
    while (beside > known && !atomic_compare_exchange_weak(most, &known, beside)) {
    }
    if (thrash && beside > thrash)
        us = us * beside * beside / (thrash * thrash);
    pace_delay(us);
    atomic_fetch_sub(&reading, 1);
}

/* pace_bytes - waits until so many bytes have passed the one link of all readers. */
static void pace_bytes(uint64_t bytes, uint64_t bytes_per_s)
{
    if (!bytes_per_s)
        return;
    pthread_mutex_lock(&link_lock);
    uint64_t now = pace_now_ns();
    if (link_free_ns + BURST_NS < now)
        link_free_ns = now - BURST_NS;
    link_free_ns += bytes * NS_PER_S / bytes_per_s;
    uint64_t passed = link_free_ns;
    pthread_mutex_unlock(&link_lock);
    pace_until(passed);
}

#endif
