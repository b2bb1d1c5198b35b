/* transfers.h - the Transfers of one engine: their queues, the threads that run them, and their
 * shared state. */
#ifndef MONARCH_TRANSFERS_H
#define MONARCH_TRANSFERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/base/clock.h"
#include "dataplane/base/ring.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/order.h"
#include "dataplane/transfers/transfers_api.h"

enum {
    THREADS_MAX = 256,
    ORDERS_MAX = 4096,    /* per class: queued, running or not yet collected */
    REQUESTED_MAX = 4096, /* requests that Python has not collected yet */
    DEMAND_THREADS = 8,   /* for programs, at first */
    DEMANDS_MAX = 256,    /* demand copies whose times Python has not collected */
    PYTHON_SILENT_MS = 1000,
    DONE_BATCH = 32, /* completions for which Python is woken */
    HEARTBEAT_MS = 100,
};

struct deferred;
struct idle_packing;
struct packs;
struct partials;
struct pool;
struct route;
struct sealer;
struct siblings;
struct table;
struct transfer;

struct worker { /* a thread */
    void *engine;
    bool copies; /* else it waits for requests */
    pthread_t thread;
};

struct demand_time { /* of a copy that a program waited for */
    uint64_t bytes, ns;
};

struct queued_order { /* that no thread has begun */
    struct monarch_order order;
    uint64_t age;
};

/* The orders for one root, and its share of the threads: a root that does not answer
 * delays its own Files only. Guarded by the lock, except the atomic words. */
struct root_queue {
    struct ring orders[CLASS_COUNT]; /* struct queued_order */
    struct ring parked; /* background Transfers that yielded to others, by age */
    uint32_t running;   /* threads that work for it, without lost ones */
    uint32_t lost;      /* threads whose system calls do not return */
    uint32_t background_begun;
    uint32_t background_running; /* as `running` */
    bool stalled;
    uint64_t stalled_ns;          /* since when */
    _Atomic uint64_t progress_ns; /* end of the last step of a Transfer */
    _Atomic uint64_t slowest_ns;  /* the longest step that was not a hang */
    _Atomic uint32_t piece;       /* how many bytes to read at once; 0: not known */
    _Atomic uint64_t latency_ns;  /* of a small read, without the time for its bytes */
    _Atomic uint64_t page_ns;     /* for each Page of a large read; 0: not known */
};

/* A token bucket over bytes, kept as the time at which it is no longer in debt. */
struct throttle {
    uint64_t bytes_per_s; /* 0 = unlimited */
    uint64_t open_at_ns;  /* nothing may start before */
};

/* Tokens to read the origin, if the options limit them; see readers.c. */
struct readers {
    uint32_t limit;             /* tokens of this node */
    uint32_t most[CLASS_COUNT]; /* wanted at once since the last report */
    bool lacking;               /* background Transfers would begin with more tokens */
    pthread_cond_t freed;
};

struct reader_counts {
    uint32_t reading[CLASS_COUNT], waiting;
};

/* One of the slowest copies from the origin; ns 0: none. */
struct slow_copy {
    uint64_t file, bytes, ns;
};

/* Callbacks for work without an order, that of fill and hints, and the route of Pages. All are
 * called under the lock. */
struct unasked_work {
    void *of;
    bool (*hints_wait)(const void *of); /* hints take precedence over fill */
    bool (*may_hint)(const void *of);   /* whatever its Source */
    bool (*may_fill)(const void *of);
    bool (*next_fill)(void *of, struct monarch_order *out);
    const struct route *pages; /* of large Files; not under the lock */
};

struct transfers {
    /* fixed from the start on */
    struct job *job;
    struct table *table; /* NULL: Python orders every Transfer */
    struct packs *packs; /* NULL: no Tier is packed */
    struct partials *partials;
    struct deferred *deferred;         /* NULL: no Tier is packed */
    struct idle_packing *idle_packing; /* the same */
    struct pool *pool;                 /* or NULL */
    struct sealer *sealer;             /* NULL: no seals are made */
    struct siblings *siblings;         /* other jobs of this user */
    struct monarch_options options;
    struct unasked_work unasked;
    bool links_by_path;      /* /proc exists: linkat() of an unnamed file by its path */
    atomic_bool links_by_fd; /* the kernel links by descriptor, as far as is known */
    uint32_t root_threads;   /* most for Files of one root */
    uint32_t root_background; /* of these, background Transfers */
    struct worker *workers;
    void *(*thread_body)(void *worker);
    void *engine;     /* for thread_body: the owner of the threads */
    uint8_t *buffers; /* one for each thread that copies */
    struct transfer *transfers;
    uint32_t transfer_count;
    pthread_mutex_t seals_lock; /* guards what options.seals points to */

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t ended; /* signalled when a thread ends */
    struct root_queue *roots;
    uint64_t age; /* of the next order: the oldest runs first */
    uint32_t outstanding[CLASS_COUNT];
    uint32_t background_limit;  /* running background Transfers */
    uint32_t background_beside; /* the same while programs wait */
    uint32_t limits;            /* how often these have changed */
    uint32_t demands_running;
    uint32_t idle;       /* threads that wait for work */
    uint32_t looking;    /* threads that look for work before they wait */
    uint64_t demand_ns;  /* end of the last demand Transfer */
    struct ring demands; /* struct demand_time */
    uint64_t pace[PACE_COUNT];
    struct slow_copy slowest[SLOWEST_MAX];
    struct ring spare; /* unused items of `transfers` */
    uint32_t *unused;  /* numbers of buffers; the last used one is last */
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

/* hints_wait - hints of programs are pending, which take precedence over fill. */
static inline bool hints_wait(const struct transfers *ts)
{
    return ts->unasked.of && ts->unasked.hints_wait(ts->unasked.of);
}

static inline bool order_reported(const struct transfers *ts, uint8_t kind)
{
    return !ts->table || (kind & MONARCH_REPORT);
}

/* root_has_thread - another Transfer of a root may take a thread. */
static inline bool root_has_thread(const struct transfers *ts,
                                   const struct root_queue *q)
{
    return q->running + q->lost < ts->root_threads;
}

/* reports_signal - makes event_fd readable exactly while Python has something to
 * collect; under the lock. */
static inline void reports_signal(struct transfers *ts)
{
    event_fd_set(&ts->event_fd,
                 ts->requested.count || ts->done.count || ts->health_changed);
}

/* scheduler.c - chooses the next order to run; the callers hold the lock */
int scheduler_init(struct transfers *ts);
void scheduler_free(struct transfers *ts);
struct transfer *scheduler_take(struct transfers *ts);
void scheduler_wait(struct transfers *ts);
void scheduler_call(struct transfers *ts);
void scheduler_return(struct transfers *ts, struct transfer *t, bool ended);
bool scheduler_push(struct transfers *ts, const struct monarch_order *order);

bool scheduler_has_room(const struct transfers *ts);
bool scheduler_is_idle(const struct transfers *ts);
void scheduler_want(struct transfers *ts, uint32_t file);
void scheduler_want_pages(struct transfers *ts, const struct page_want *wanted);

/* threads.c - the callers of the first four hold the lock */
int threads_start(struct transfers *ts);
void threads_for_demand(struct transfers *ts);
void idle_call(struct transfers *ts);
void idle_call_all(struct transfers *ts);
void idle_answer(struct transfers *ts);
void idle_wait(struct transfers *ts, const struct timespec *most);

/* parked.c - background Transfers that have yielded; the callers hold the lock */
void parked_add(struct root_queue *q, struct transfer *t);
struct root_queue *parked_oldest(const struct transfers *ts);
struct transfer *parked_take_awaited(struct transfers *ts);

/* readers.c - tokens to read the origin; the callers of the first three hold the lock */
bool readers_free(const struct transfers *ts);
void readers_reserve(struct transfers *ts, struct transfer *t);
void readers_give_back(struct transfers *ts, struct transfer *t);
void readers_enter(struct transfers *ts, struct transfer *t);
void readers_leave(struct transfers *ts, struct transfer *t);
void readers_set(struct transfers *ts, uint32_t n);
void readers_report(struct transfers *ts, struct monarch_readers *out);

/* reports.c - Files that Python alone can judge */
void report_file(struct transfers *ts, uint32_t file);
void report_file_locked(struct transfers *ts, uint32_t file);
void report_completion(struct transfers *ts, const struct monarch_completion *done);
void report_tier(struct transfers *ts, const struct transfer *t, uint32_t tier,
                 int status);
void completions_expire(struct transfers *ts, struct ring *done);
uint32_t reports_take_files(struct transfers *ts, uint32_t *files, uint32_t max);
uint32_t reports_take_completions(struct transfers *ts, struct monarch_completion *out,
                                  uint32_t max);

/* A program that was served is expected to request again at once. */
#define DEMAND_HOLD_NS (2 * MS_NS)

/* pace.c - the throughput of the origin; the caller holds the lock, except for pace_chunk() */
uint32_t pace_background(const struct transfers *ts, uint64_t now);
bool pace_is_full(const struct transfers *ts, uint32_t limit);
bool pace_is_held_up(struct transfers *ts, const struct transfer *t);
bool pace_may_hurry(const struct transfers *ts);
bool pace_is_busy(const struct transfers *ts, uint32_t limit);
void pace_read(struct transfers *ts, struct transfer *t);
void pace_file(struct transfers *ts, struct transfer *t);
void pace_charge(struct transfers *ts, const struct transfer *t, uint64_t now);
void pace_chunk(struct transfers *ts, struct transfer *t, uint64_t ns);
void pace_report(struct transfers *ts, uint64_t out[PACE_COUNT]);
uint32_t pace_take_demands(struct transfers *ts, uint64_t *pairs, uint32_t max);
uint32_t pace_report_slowest(struct transfers *ts, uint64_t *rows);

/* health.c - whether the origin of each root answers */
void health_note_step(struct transfers *ts, struct transfer *t);
void health_note_wait(struct transfer *t, bool waits);
size_t health_piece(const struct transfers *ts, const struct transfer *t, size_t n);
void health_note_piece(struct transfers *ts, const struct transfer *t, size_t n,
                       uint64_t ns);
uint32_t health_widest(const struct transfers *ts, uint32_t root);
void health_check(struct transfers *ts);
void health_check_stalled(struct transfers *ts);
void health_report(struct transfers *ts, struct monarch_health *out);

#endif
