/* read_through.c - reads small ranges that are missing from the origin itself, while that is faster
 * than waiting for the agent; the agent copies them afterwards, out of the client's page cache.
 *
 * To wait for a Page of 4 KiB costs two wake-ups of another thread, some 40 us; an origin without
 * latency answers in a tenth of that. Whether it does is measured with each such read. On a slow
 * origin the agent is faster: it reads more at once and merges requests.
 */
#include "shim/serving/read_through.h"

#include <time.h>

#include "shim/base/sys.h"
#include "shim/names/wait.h"
#include "shim/serving/large_replica.h"

enum {
    SLOW_NS = 300000, /* a read that took longer */
    SLOW_MAX = 4,     /* so many more of these than of fast ones: the agent is asked */
    TRY_AGAIN = 256,  /* of the refused reads, one in so many is tried */
    CALL_EACH = 32,   /* requests that wake the agent once */
    CACHED_NS = 5000, /* no client asks its server in this time */
    PROBES = 5,       /* reads after which it is known whether it caches */
};

/* What this process has measured of each root. */
static struct measured {
    _Atomic uint32_t slow, refused, probes, cached;
} measured[ROOTS_MAX];

static _Atomic uint32_t posted;

static uint64_t now_ns(void)
{
    struct timespec t = {0};
    sys_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0, 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* note - records how long a read took. A single slow one is a thread that had to wait for a
 * processor. */
static void note(struct measured *m, uint64_t ns)
{
    uint32_t slow = atomic_load_explicit(&m->slow, memory_order_relaxed);
    if (ns > SLOW_NS && slow < SLOW_MAX)
        slow++;
    else if (ns <= SLOW_NS && slow)
        slow--;
    else
        return;
    atomic_store_explicit(&m->slow, slow, memory_order_relaxed);
}

/* probe - measures whether the origin's client caches the bytes just read: if not, the agent's copy
 * would cost the origin the same bytes again. If so, a read of the same place takes at most two
 * thirds of the time. */
static void probe(struct measured *m, int fd, uint64_t at, uint64_t took)
{
    char byte;
    if (atomic_load_explicit(&m->probes, memory_order_relaxed) >= PROBES)
        return;
    uint64_t began = now_ns();
    sys_call(SYS_pread64, fd, (long)&byte, 1, (long)at, 0);
    uint64_t again = now_ns() - began;
    bool cached = again <= CACHED_NS || 3 * again <= 2 * took;
    atomic_fetch_add_explicit(&m->cached, cached, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->probes, 1, memory_order_relaxed);
}

/* is_cached - the client of the origin caches, as far as measured. */
static bool is_cached(const struct measured *m)
{
    uint32_t probes = atomic_load_explicit(&m->probes, memory_order_relaxed);
    return probes < PROBES ||
           2 * atomic_load_explicit(&m->cached, memory_order_relaxed) > probes;
}

/* is_fast - the origin of a root answers at once, as far as measured. */
static bool is_fast(struct measured *m)
{
    if (atomic_load_explicit(&m->slow, memory_order_relaxed) < SLOW_MAX)
        return true;
    return atomic_fetch_add_explicit(&m->refused, 1, memory_order_relaxed) %
               TRY_AGAIN ==
           TRY_AGAIN - 1;
}

/* through_applies - a read of n bytes is short, random and of missing Pages; no other node sends
 * Pages, and the origin answers at once. */
bool through_applies(const struct large *l, int fd, uint64_t at, uint64_t n)
{
    uint32_t first = (uint32_t)(at / PAGE_BYTES);
    const struct page_range range = {l->large, first, pages_of(at + n) - first};
    struct replica r;
    return n <= THROUGH_BYTES_MAX && l->root < ROOTS_MAX && wait_is_alone(l->seg) &&
           read_ahead_is_random(fd, l, at) && !replica_there(l, &range, &r) &&
           is_cached(&measured[l->root]) && is_fast(&measured[l->root]);
}

/* through_read - reads the origin and asks the agent for a copy. */
long through_read(const struct large *l, int fd, const struct iovec *pieces, int count,
                  uint64_t at, uint64_t n)
{
    uint32_t first = (uint32_t)(at / PAGE_BYTES);
    const struct page_range range = {l->large, first, pages_of(at + n) - first};
    uint64_t began = now_ns();
    long got = count > 1 ? sys_call(SYS_preadv, fd, (long)pieces, count, (long)at, 0)
                         : sys_call(SYS_pread64, fd, (long)pieces->iov_base, (long)n,
                                    (long)at, 0);
    uint64_t took = now_ns() - began;
    note(&measured[l->root], took);
    probe(&measured[l->root], fd, at, took);
    bool calls = atomic_fetch_add_explicit(&posted, 1, memory_order_relaxed) %
                     CALL_EACH ==
                 0;
    wait_post(l->seg, presence_request(range), calls);
    return got;
}
