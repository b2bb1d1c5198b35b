/* engine.h - the state that the threads of one engine share. */
#ifndef MONARCH_ENGINE_H
#define MONARCH_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "dataplane/monarch.h"
#include "dataplane/ring.h"
#include "dataplane/throttle.h"
#include "shared/layout.h"

enum {
    THREADS_MAX = 256,
    ORDERS_MAX = 4096, /* per class: queued, running or not yet collected */
    ASKED_MAX = 4096,  /* requests that Python has not taken yet */
    DONE_BATCH = 32,   /* completions that are worth waking Python for */
    HEARTBEAT_MS = 100,
};

enum order_class { CLASS_DEMAND, CLASS_BACKGROUND, CLASS_COUNT };

struct transfer;
struct worker;

/* What is ordered of one root, and its share of the threads: a root that does not answer
 * holds up its own Files only. Guarded by the engine's lock but for the atomic words. */
struct root_queue {
    struct ring orders[CLASS_COUNT]; /* struct waiting */
    struct ring parked;              /* background Transfers that let others go first */
    uint32_t running; /* threads that are busy with it, but for those given up */
    uint32_t lost;    /* threads that were given up: their calls do not return */
    uint32_t background_begun;
    bool stalled;
    uint64_t stalled_ns;          /* since when */
    _Atomic uint64_t progress_ns; /* when a step of a Transfer has last ended */
    _Atomic uint64_t slowest_ns;  /* the longest that one took and was no hang */
    atomic_bool slow;             /* a chunk takes long: read it in pieces */
};

struct engine {
    /* fixed from monarch_engine_new() on */
    const struct catalog *catalog;
    struct flags *flags;
    struct requests *requests;
    struct inodes *inodes;
    struct monarch_options options;
    int tiers[TIERS_MAX]; /* descriptors of their directories, or -errno */
    uid_t euid;
    bool links_descriptors; /* /proc is there to give an unnamed file its name */
    atomic_bool
        links_itself; /* the kernel does so by the descriptor, as far as known */
    int event_fd;
    uint32_t started; /* threads */
    uint32_t root_count;
    uint32_t root_threads; /* that Files of one root may take */
    struct worker *workers;
    uint8_t *buffers;
    struct transfer *transfers;
    uint32_t transfer_count;
    struct sealer *sealer; /* NULL: this node makes no seals */

    atomic_bool stopping;
    pthread_mutex_t inodes_lock; /* serialises changes of the inode table */
    pthread_mutex_t seals_lock;  /* guards what options.seals points to */

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t work;
    struct root_queue *roots;
    uint64_t age; /* of the next order: who waits longest is served first */
    uint32_t outstanding[CLASS_COUNT];
    struct ring spare; /* unused items of `transfers` */
    struct throttle throttle;
    struct ring asked;
    uint8_t *asked_bits; /* one per File: it is in `asked` */
    struct ring done;
    struct monarch_health health;
    bool health_news; /* that Python has not heard of */
    bool signalled;   /* event_fd is readable */
    uint32_t running; /* threads that have not ended */
};

static inline enum order_class order_class(uint8_t kind)
{
    return kind & 1 ? CLASS_BACKGROUND : CLASS_DEMAND;
}

static inline bool engine_stops(const struct engine *e)
{
    return atomic_load_explicit(&e->stopping, memory_order_acquire);
}

void engine_settle(struct engine *e);

#endif
