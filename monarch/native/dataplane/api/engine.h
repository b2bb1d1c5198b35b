/* engine.h - the state that the threads of one engine share. */
#ifndef MONARCH_ENGINE_H
#define MONARCH_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/api.h"
#include "dataplane/base/ring.h"
#include "shared/layout.h"

enum {
    THREADS_MAX = 256,
    ORDERS_MAX = 4096,    /* per class: queued, running or not yet collected */
    REQUESTED_MAX = 4096, /* requests that Python has not collected yet */
    DEMAND_THREADS = 8,   /* for programs, at first */
    DEMANDS_MAX = 256,    /* copies of demand whose times Python has not collected */
    PYTHON_SILENT_MS = 1000,
    DONE_BATCH = 32, /* completions that are worth waking Python for */
    HEARTBEAT_MS = 100,
    POOL_MS = 5, /* period in which Files that wait for room are looked at */
};

enum order_class { CLASS_DEMAND, CLASS_BACKGROUND, CLASS_COUNT };

struct deferred;
struct compaction;
struct eviction;
struct hints;
struct packs;
struct partials;
struct pool;
struct pool_queue;
struct receiver;
struct table;
struct transfer;

struct worker { /* a thread */
    struct engine *engine;
    bool copies; /* else it listens to programs */
    pthread_t thread;
};

struct demand_time { /* how long a copy took that a program waited for */
    uint64_t bytes, ns;
};

struct queued_order { /* that no thread has begun */
    struct monarch_order order;
    uint64_t age;
};

/* The orders for one root, and its share of the threads: a root that does not answer
 * delays its own Files only. Guarded by the engine's lock but for the atomic words. */
struct root_queue {
    struct ring orders[CLASS_COUNT]; /* struct queued_order */
    struct ring parked; /* background Transfers that yielded to others, by age */
    uint32_t running;   /* threads that work for it, without those that are lost */
    uint32_t lost;      /* threads whose system calls do not return */
    uint32_t background_begun;
    uint32_t background_running; /* as `running` */
    bool stalled;
    uint64_t stalled_ns;          /* since when */
    _Atomic uint64_t progress_ns; /* when a step of a Transfer has last ended */
    _Atomic uint64_t slowest_ns;  /* the longest step that was not a hang */
    _Atomic uint32_t piece;       /* how many bytes to read at once; 0: not known */
};

/* A token bucket over bytes, kept as the time at which it is no longer in debt. */
struct throttle {
    uint64_t bytes_per_s; /* 0 = unlimited */
    uint64_t open_at_ns;  /* nothing may start before */
};

/* Tokens to read the origin, if the options limit them; see readers.c. */
struct readers {
    uint32_t limit;             /* tokens of this node */
    uint32_t most[CLASS_COUNT]; /* wanted at once since Python has asked */
    bool lacking;               /* background Transfers would begin with more tokens */
    pthread_cond_t freed;
};

struct reader_counts {
    uint32_t reading[CLASS_COUNT], waiting;
};

/* Files in an order, and how many of them have been looked at. */
struct fill_list {
    const uint32_t *files;
    uint64_t count, next;
};

struct fill {
    struct fill_list to_read, to_fetch;
    bool paused;         /* no program runs here: nothing is fetched from peers */
    uint64_t mean_bytes; /* of all Files */
};

/* One of the copies from the origin that took longest; ns 0: none. */
struct slow_copy {
    uint64_t file, bytes, ns;
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
    bool links_by_path; /* /proc is there: linkat() of an unnamed file by its path */
    atomic_bool links_by_fd; /* the kernel links by descriptor, as far as is known */
    uint32_t root_count;
    uint32_t root_threads;    /* that Files of one root may take */
    uint32_t root_background; /* of these, background Transfers */
    struct worker *workers;
    void *(*thread_body)(void *worker);
    uint8_t *buffers; /* one for each thread that copies */
    struct transfer *transfers;
    uint32_t transfer_count;
    struct sealer *sealer; /* NULL: no seals are made */
    struct table *table;   /* NULL: Python orders every Transfer */
    struct pool *pool;     /* NULL: there is none */
    struct pool_queue *pool_queue;
    struct hints *hints;           /* NULL: none can be given */
    struct packs *packs;           /* NULL: no Tier is packed */
    struct deferred *deferred;     /* the same */
    struct compaction *compaction; /* of these; NULL: there are none */
    struct eviction *eviction;     /* NULL: no Tier evicts */
    struct partials *partials;     /* NULL: all Files are staged whole */

    atomic_bool stopping;
    uint64_t checked_ns;         /* used by the thread that listens to programs */
    _Atomic uint64_t asked_ns;   /* when a program or a peer has asked last */
    pthread_mutex_t inodes_lock; /* serialises changes of the inode table */
    pthread_mutex_t seals_lock;  /* guards what options.seals points to */

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t ended; /* a thread */
    struct root_queue *roots;
    uint64_t age; /* of the next order: the oldest runs first */
    uint32_t outstanding[CLASS_COUNT];
    struct receiver *receiver; /* NULL: no peers yet, or no more */
    struct fill fill;
    uint32_t background_limit;  /* running background Transfers */
    uint32_t background_beside; /* the same while programs wait */
    uint32_t limits;            /* how often these have changed */
    uint32_t demands_running;
    uint32_t idle;       /* threads that wait for work */
    uint32_t looking;    /* threads that look for work before they wait */
    uint64_t demand_ns;  /* when the last one has ended */
    struct ring demands; /* struct demand_time */
    uint64_t pace[PACE_COUNT];
    struct slow_copy slowest[SLOWEST_MAX];
    struct ring spare; /* unused items of `transfers` */
    uint32_t *unused;  /* numbers of buffers, the one used last behind all others */
    uint32_t unused_count;
    struct throttle throttle;
    struct readers readers;
    struct ring requested;   /* Files that programs and peers wait for */
    uint8_t *requested_bits; /* one per File: it is in `requested` */
    struct ring done;        /* struct monarch_completion */
    struct monarch_health health;
    bool health_changed; /* since Python has read it */
    struct event_fd event_fd;
    uint32_t started; /* threads */
    uint32_t running; /* threads that have not ended */
};

static inline bool order_reported(const struct engine *e, uint8_t kind)
{
    return !e->table || (kind & MONARCH_REPORT);
}

static inline enum order_class order_class(uint8_t kind)
{
    return kind & 1 ? CLASS_BACKGROUND : CLASS_DEMAND;
}

struct block_want { /* Blocks of one File that programs wait for */
    uint32_t file, first, count;
};

/* order_has_blocks - an order is for some of these Blocks. */
static inline bool order_has_blocks(const struct monarch_order *order,
                                    const struct block_want *wanted)
{
    return order->file == wanted->file &&
           order->first_block < wanted->first + wanted->count &&
           wanted->first < order->first_block + order->block_count;
}

/* root_has_thread - another Transfer of a root may take a thread. */
static inline bool root_has_thread(const struct engine *e, const struct root_queue *q)
{
    return q->running + q->lost < e->root_threads;
}

/* engine_is_awaited - a program waits for a File, or for another one with the same count. */
static inline bool engine_is_awaited(const struct engine *e, uint32_t file)
{
    return atomic_load_explicit(
        (const _Atomic uint32_t *)&e->requests->waiters[file % WAITER_COUNTS],
        memory_order_relaxed);
}

static inline bool engine_stopping(const struct engine *e)
{
    return atomic_load_explicit(&e->stopping, memory_order_acquire);
}

/* engine_signal - makes event_fd readable exactly while Python has something to
 * collect; under the lock. */
static inline void engine_signal(struct engine *e)
{
    event_fd_set(&e->event_fd,
                 e->requested.count || e->done.count || e->health_changed);
}

/* scheduler.c - which order runs next; the callers hold the lock */
int scheduler_init(struct engine *e);
void scheduler_free(struct engine *e);
struct transfer *scheduler_take(struct engine *e);
void scheduler_wait(struct engine *e);
void scheduler_call(struct engine *e);
void scheduler_return(struct engine *e, struct transfer *t, bool ended);
bool scheduler_push(struct engine *e, const struct monarch_order *order);

bool scheduler_has_room(const struct engine *e);
bool scheduler_is_idle(const struct engine *e);
void scheduler_want(struct engine *e, uint32_t file);
void scheduler_want_blocks(struct engine *e, const struct block_want *wanted);

/* threads.c - the callers hold the lock */
int threads_start(struct engine *e);
void threads_for_demand(struct engine *e);

/* parked.c - background Transfers that have yielded; the callers hold the lock */
void parked_add(struct root_queue *q, struct transfer *t);
struct root_queue *parked_oldest(const struct engine *e);
struct transfer *parked_take_awaited(struct engine *e);

/* readers.c - who may read the origin; the callers of the first three hold the lock */
bool readers_free(const struct engine *e);
void readers_reserve(struct engine *e, struct transfer *t);
void readers_give_back(struct engine *e, struct transfer *t);
void readers_enter(struct engine *e, struct transfer *t);
void readers_leave(struct engine *e, struct transfer *t);

/* fill.c - background fill; the callers hold the lock */
bool fill_may_read(const struct engine *e);
bool fill_read(struct engine *e, struct monarch_order *out);
uint64_t fill_fetch_room(const struct engine *e, uint64_t count, uint64_t bytes);
bool fill_paused(struct engine *e);
bool fill_fetch(struct engine *e, struct monarch_order *out);

/* reports.c - Files that Python alone can judge */
void report_file(struct engine *e, uint32_t file);
void report_file_locked(struct engine *e, uint32_t file);
void report_completion(struct engine *e, const struct monarch_completion *done);
void report_tier(struct engine *e, const struct transfer *t, uint32_t tier, int status);
void completions_expire(struct engine *e, struct ring *done);

/* A program that has been served is expected to ask again at once. */
#define DEMAND_HOLD_NS (2 * MS_NS)

/* pace.c - what the origin gives; the caller holds the lock, but for pace_chunk() */
uint32_t pace_background(const struct engine *e, uint64_t now);
void pace_read(struct engine *e, struct transfer *t);
void pace_file(struct engine *e, struct transfer *t);
void pace_chunk(struct engine *e, struct transfer *t, uint64_t ns);

/* requests.c - what programs ask for, and the thread that listens to them */
void requests_listen(struct engine *e);
void requests_look(struct engine *e);

/* wakeups.c - how threads are woken */
void requests_wake(struct engine *e);
void idle_call(struct engine *e);
void idle_call_all(struct engine *e);
void idle_answer(struct engine *e);
void idle_wait(struct engine *e, const struct timespec *most);

/* health.c - whether the origin of each root answers */
void health_note_step(struct engine *e, struct transfer *t);
void health_note_wait(struct transfer *t, bool waits);
size_t health_piece(const struct engine *e, const struct transfer *t, size_t n);
void health_note_piece(struct engine *e, const struct transfer *t, size_t n,
                       uint64_t ns);
void health_check(struct engine *e);
void health_check_stalled(struct engine *e);

#endif
