/* queues.c - demand first, background limited and throttled, bounded queues, a prompt
 * stop. */
#include "board.h"
#include "fault.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"

enum { SMALL = 1000, LARGE_CHUNKS = 6 };

static sem_t arrived, go;
static atomic_int running, running_max;
static struct engine *volatile abandoned; /* reachable: not an accidental leak */

/* read_gated - each read reports its arrival and waits to be let through. */
static ssize_t read_gated(int fd, void *buffer, size_t n)
{
    if (n <= 8)
        return __real_read(fd, buffer, n);
    int now = atomic_fetch_add(&running, 1) + 1;
    int max = atomic_load(&running_max);
    while (now > max && !atomic_compare_exchange_weak(&running_max, &max, now)) {
    }
    sem_post(&arrived);
    while (sem_wait(&go) && errno == EINTR) {
    }
    atomic_fetch_sub(&running, 1);
    return __real_read(fd, buffer, n);
}

static void shut_gate(void)
{
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    running_max = 0;
    fault_read = read_gated;
}

static void start(struct board *b, uint32_t threads, uint32_t background_max)
{
    board_start(b, threads, background_max);
    fault_none_slow(b->engine);
}

static void open_gate(int n)
{
    while (n-- > 0)
        sem_post(&go);
}

static void demand_overtakes_background_inside_a_file(void)
{
    const uint64_t sizes[] = {LARGE_CHUNKS * (uint64_t)CHUNK_BYTES, SMALL, SMALL};
    struct board *b = board_new(3, sizes);
    shut_gate();
    start(b, 1, 1);
    board_submit(b, 0, MONARCH_BACKGROUND);
    sem_wait(&arrived); /* the large one is in its first chunk */
    board_submit(b, 1, MONARCH_BACKGROUND);
    board_submit(b, 2, MONARCH_DEMAND);
    open_gate(100);
    CHECK(board_wait(b).file == 2);
    CHECK(board_wait(b).file == 0); /* a started copy ends before the next begins */
    CHECK(board_wait(b).file == 1);
    fault_read = NULL;
    for (uint32_t i = 0; i < 3; i++)
        CHECK(board_replica_right(b, i));
    board_free(b);
}

static void background_is_bounded(void)
{
    struct board *b = board_new_equal(8, SMALL);
    shut_gate();
    start(b, 4, 2);
    for (uint32_t i = 0; i < 7; i++)
        board_submit(b, i, MONARCH_BACKGROUND);
    sem_wait(&arrived);
    sem_wait(&arrived);
    board_submit(b, 7, MONARCH_DEMAND); /* a third thread is free for it */
    sem_wait(&arrived);
    CHECK(atomic_load(&running_max) == 3);
    open_gate(100);
    for (uint32_t i = 0; i < 8; i++)
        CHECK(board_wait(b).status == 0);
    CHECK(atomic_load(&running_max) == 3);
    fault_read = NULL;
    board_free(b);
}

static void the_limit_of_background_changes_and_threads_follow(void)
{
    uint64_t pace[PACE_COUNT];
    struct board *b = board_new_equal(9, SMALL);
    shut_gate();
    b->options.background_first = 1;
    start(b, 5, 3);
    struct engine *e = b->engine;
    CHECK(e->transfers.started ==
          1 + 3); /* requests, one background, two for programs */
    for (uint32_t i = 0; i < 8; i++)
        board_submit(b, i, MONARCH_BACKGROUND);
    sem_wait(&arrived);
    board_submit(b, 8, MONARCH_DEMAND);
    sem_wait(&arrived);
    CHECK(atomic_load(&running_max) == 2);
    monarch_engine_set_background(e, 9, 9); /* no more than announced */
    CHECK(e->transfers.started == 1 + 5);
    sem_wait(&arrived);
    sem_wait(&arrived);
    monarch_engine_set_background(e, 0, 9);
    open_gate(4);
    for (int i = 0; i < 4; i++)
        CHECK(board_wait(b).status == 0);
    CHECK(sem_trywait(&arrived) == -1);
    monarch_engine_pace(e, pace);
    CHECK(pace[PACE_FILES] == 4 && pace[PACE_STALE] == 4);
    monarch_engine_set_background(e, 1, 9);
    sem_wait(&arrived);
    open_gate(100);
    for (int i = 0; i < 5; i++)
        CHECK(board_wait(b).status == 0);
    CHECK(atomic_load(&running_max) == 4);
    monarch_engine_pace(e, pace);
    CHECK(pace[PACE_FILES] == 9 && pace[PACE_STALE] == 4);
    fault_read = NULL;
    board_free(b);
}

static void demand_gets_the_threads_that_it_needs(void)
{
    struct board *b = board_new_equal(12, SMALL);
    shut_gate();
    start(b, 14, 2);
    CHECK(b->engine->transfers.started == 1 + 2 + DEMAND_THREADS);
    for (uint32_t i = 0; i < 10; i++)
        board_submit(b, i, MONARCH_DEMAND);
    for (int i = 0; i < 10; i++) /* none waits for another */
        sem_wait(&arrived);
    for (uint32_t i = 10; i < 12; i++) /* also without a free thread to notice it */
        board_submit(b, i, MONARCH_DEMAND);
    sem_wait(&arrived);
    sem_wait(&arrived);
    open_gate(12);
    for (int i = 0; i < 12; i++)
        CHECK(board_wait(b).status == 0);
    fault_read = NULL;
    board_free(b);
}

/* one_call_wakes_as_many_threads_as_there_are_orders - each woken thread calls the next
 * before it copies. */
static void one_call_wakes_as_many_threads_as_there_are_orders(void)
{
    enum { ORDERS = DEMAND_THREADS };
    static struct monarch_order orders[ORDERS];
    struct board *b = board_new_equal(ORDERS, SMALL);
    shut_gate();
    start(b, ORDERS + 1, 1);
    board_wait_idle(b, ORDERS + 1);
    for (uint32_t i = 0; i < ORDERS; i++) {
        orders[i] = (struct monarch_order){.file = i};
        board_set_state(b, i, STATE_WORD(REPLICA_STAGING, 0, 0));
    }
    uint64_t began = clock_ns();
    CHECK(monarch_engine_submit(b->engine, orders, ORDERS) == ORDERS);
    for (int i = 0; i < ORDERS; i++)
        sem_wait(&arrived);
    CHECK(clock_ns() - began < ORDERS / 2 * HEARTBEAT_MS * MS_NS); /* not one a beat */
    open_gate(ORDERS);
    for (int i = 0; i < ORDERS; i++)
        CHECK(board_wait(b).status == 0);
    fault_read = NULL;
    board_free(b);
}

static void *first_buffer;
static atomic_bool other_buffer;

static ssize_t note_buffer(int fd, void *buffer, size_t n)
{
    if (n > 8 && !first_buffer)
        first_buffer = buffer;
    if (n > 8 && buffer != first_buffer)
        atomic_store(&other_buffer, true);
    return __real_read(fd, buffer, n);
}

/* copies_in_turn_use_one_buffer - whichever threads copy: it stays in the caches. */
static void copies_in_turn_use_one_buffer(void)
{
    struct board *b = board_new_equal(40, SMALL);
    fault_read = note_buffer;
    start(b, 4, 1);
    for (uint32_t i = 0; i < 40; i++)
        CHECK(board_run(b, i, MONARCH_DEMAND).status == 0);
    CHECK(first_buffer && !atomic_load(&other_buffer));
    fault_read = NULL;
    board_free(b);
}

static void fill_yields_to_demand_and_comes_back(void)
{
    uint64_t took[2];
    struct board *b = board_new_equal(5, SMALL);
    shut_gate();
    start(b, 5, 3);
    struct engine *e = b->engine;
    monarch_engine_set_background(e, 3, 0);
    board_submit(b, 4, MONARCH_DEMAND);
    sem_wait(&arrived);
    for (uint32_t i = 0; i < 4; i++)
        board_submit(b, i, MONARCH_BACKGROUND);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    CHECK(sem_trywait(&arrived) == -1);
    CHECK(monarch_engine_demands(e, took, 1) == 0);
    open_gate(1);
    CHECK(board_wait(b).file == 4);
    for (int i = 0; i < 3; i++) /* soon after, all that are allowed to run */
        sem_wait(&arrived);
    CHECK(sem_trywait(&arrived) == -1);
    CHECK(monarch_engine_demands(e, took, 1) == 1);
    CHECK(took[0] == SMALL && took[1] >= 20000000);
    open_gate(100);
    for (int i = 0; i < 4; i++)
        CHECK(board_wait(b).status == 0);
    fault_read = NULL;
    board_free(b);
}

static void a_large_file_of_fill_stops_at_its_next_chunk_for_demand(void)
{
    const uint64_t sizes[] = {LARGE_CHUNKS * (uint64_t)CHUNK_BYTES, SMALL};
    struct board *b = board_new(2, sizes);
    shut_gate();
    start(b, 2, 1);
    monarch_engine_set_background(b->engine, 1, 0);
    board_submit(b, 0, MONARCH_BACKGROUND);
    sem_wait(&arrived); /* in its first chunk */
    board_submit(b, 1, MONARCH_DEMAND);
    sem_wait(&arrived);
    open_gate(1); /* either one continues: the other is released as well */
    open_gate(1);
    CHECK(board_wait(b).file == 1);
    open_gate(100);
    CHECK(board_wait(b).file == 0);
    fault_read = NULL;
    board_free(b);
}

/* If they took turns by chunk, both would end last, and an origin with read-ahead would
 * read ahead for both. */
static void of_large_files_that_yield_the_first_goes_on(void)
{
    struct board *b = board_new_equal(2, LARGE_CHUNKS * (uint64_t)CHUNK_BYTES);
    shut_gate();
    start(b, 3, 2);
    board_submit(b, 0, MONARCH_BACKGROUND);
    sem_wait(&arrived);
    board_submit(b, 1, MONARCH_BACKGROUND);
    sem_wait(&arrived); /* both are in their first chunk */
    monarch_engine_set_background(b->engine, 1, 1);
    open_gate(LARGE_CHUNKS + 2);
    CHECK(board_wait(b).file == 0);
    CHECK(STATE_OF(board_state(b, 1)) == REPLICA_STAGING);
    open_gate(100);
    CHECK(board_wait(b).file == 1);
    fault_read = NULL;
    board_free(b);
}

static void the_queue_has_an_end(void)
{
    static struct monarch_order orders[ORDERS_MAX + 10];
    struct monarch_completion done;
    struct board *b = board_new_equal(1, SMALL);
    for (uint32_t i = 0; i < ORDERS_MAX + 10; i++)
        orders[i] = (struct monarch_order){.file = 9}; /* refused one by one */
    start(b, 2, 1);
    CHECK(monarch_engine_submit(b->engine, orders, ORDERS_MAX + 10) == ORDERS_MAX);
    CHECK(monarch_engine_submit(b->engine, orders, 1) == 0);
    const struct monarch_order other = {.file = 0, .kind = MONARCH_BACKGROUND};
    board_set_state(b, 0, STATE_WORD(REPLICA_STAGING, 0, 0));
    CHECK(monarch_engine_submit(b->engine, &other, 1) == 1); /* its own queue */
    for (uint32_t i = 0; i < ORDERS_MAX + 1; i++) {
        done = board_wait(b);
        CHECK(done.status == (done.file == 9 ? -EINVAL : 0));
    }
    CHECK(monarch_engine_submit(b->engine, orders, 1) == 1);
    board_free(b);
}

static void only_background_is_throttled(void)
{
    const uint64_t sizes[] = {5 * (uint64_t)CHUNK_BYTES, 5 * (uint64_t)CHUNK_BYTES};
    struct board *b = board_new(2, sizes);
    b->options.bandwidth_bytes_per_s = 10 * (uint64_t)CHUNK_BYTES;
    start(b, 1, 1);
    uint64_t began = clock_ns();
    board_submit(b, 0, MONARCH_BACKGROUND);
    board_submit(b, 1, MONARCH_DEMAND);
    CHECK(board_wait(b).file == 1); /* although only one thread exists */
    CHECK(board_wait(b).file == 0);
    /* 5 chunks at 10 a second, the first two on credit and at once */
    CHECK(clock_ns() - began >= 3 * SECOND_NS / 10 - SECOND_NS / 100);
    board_free(b);
}

static void stop_ends_running_copies(void)
{
    struct board *b = board_new_equal(6, LARGE_CHUNKS * (uint64_t)CHUNK_BYTES);
    shut_gate();
    start(b, 3, 2);
    for (uint32_t i = 0; i < 6; i++)
        board_submit(b, i, i % 2 ? MONARCH_DEMAND : MONARCH_BACKGROUND);
    open_gate(3); /* some are in a later chunk, some parked; four reads end a copy */
    for (int i = 0; i < 6; i++)
        sem_wait(&arrived);
    atomic_store(&b->engine->job.stopping, true);
    open_gate(100);
    board_stop(b);
    fault_read = NULL;
    CHECK(board_names(b, "") == 0);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(STATE_OF(board_state(b, i)) == REPLICA_STAGING);
    board_free(b);
}

static void stop_leaves_a_hanging_thread_behind(void)
{
    struct board *b = board_new_equal(1, SMALL);
    shut_gate();
    start(b, 2, 1);
    struct engine *e = abandoned = b->engine;
    board_submit(b, 0, MONARCH_DEMAND);
    sem_wait(&arrived);
    CHECK(monarch_engine_free(e, 50) == -ETIMEDOUT);
    CHECK(board_names(b, ".part") == 0 || board_names(b, "") == 1);
    open_gate(1); /* the origin answers at last */
    struct timespec until = clock_timespec(clock_ns() + 60 * SECOND_NS);
    pthread_mutex_lock(&e->transfers.lock);
    while (e->transfers.running)
        CHECK(pthread_cond_timedwait(&e->transfers.ended, &e->transfers.lock, &until) ==
              0);
    pthread_mutex_unlock(&e->transfers.lock);
    b->engine = NULL;
    fault_read = NULL;
    CHECK(board_names(b, "") == 0);
    CHECK(STATE_OF(board_state(b, 0)) == REPLICA_STAGING);
    board_free(b);
}

static void wrong_segments_are_refused(void)
{
    struct board *b = board_new_equal(1, SMALL);
    struct engine *e = NULL;
    struct monarch_options options = {.threads = 1};
    const struct monarch_segments right = {b->catalog, b->flags, b->requests,
                                           b->inodes};
    const struct monarch_segments swapped = {b->catalog, b->requests, b->flags,
                                             b->inodes};
    const struct monarch_segments missing = {b->catalog, b->flags, b->requests, NULL};
    CHECK(monarch_engine_new(&swapped, &options, &e) == -EINVAL);
    CHECK(monarch_engine_new(&missing, &options, &e) == -EINVAL);
    options.threads = 0;
    CHECK(monarch_engine_new(&right, &options, &e) == -EINVAL);
    options.threads = THREADS_MAX + 1;
    CHECK(monarch_engine_new(&right, &options, &e) == -EINVAL);
    CHECK(e == NULL);
    board_free(b);
}

int main(void)
{
    demand_overtakes_background_inside_a_file();
    background_is_bounded();
    the_limit_of_background_changes_and_threads_follow();
    demand_gets_the_threads_that_it_needs();
    one_call_wakes_as_many_threads_as_there_are_orders();
    copies_in_turn_use_one_buffer();
    fill_yields_to_demand_and_comes_back();
    a_large_file_of_fill_stops_at_its_next_chunk_for_demand();
    of_large_files_that_yield_the_first_goes_on();
    the_queue_has_an_end();
    only_background_is_throttled();
    stop_ends_running_copies();
    stop_leaves_a_hanging_thread_behind();
    wrong_segments_are_refused();
    return PASS;
}
