/* roots.c - a root whose origin does not answer delays only its own Files. */
#include "board.h"
#include "fault.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"

/* Both roots are the same directory: File OTHER + n is File n under another root. */
enum { OTHER = 16, HUNG_BYTES = 1001, SMALL = 1000, HUNG = 8 };

static sem_t arrived, go;
static uint32_t readers_max;

/* read_hung - reads of the first files wait to be let through. */
static ssize_t read_hung(int fd, void *buffer, size_t n)
{
    struct stat st;
    if (n > 8 && fstat(fd, &st) == 0 && st.st_size == HUNG_BYTES) {
        sem_post(&arrived);
        while (sem_wait(&go) && errno == EINTR) {
        }
    }
    return __real_read(fd, buffer, n);
}

static struct board *two_roots(uint32_t threads, uint32_t background_max)
{
    static uint64_t sizes[2 * OTHER];
    for (uint32_t i = 0; i < 2 * OTHER; i++)
        sizes[i] = i < HUNG ? HUNG_BYTES : SMALL;
    struct board *b = board_new(2 * OTHER, sizes);
    struct catalog *cat = b->catalog;
    cat->root_count = 2;
    cat->roots[1] = cat->roots[0];
    cat->roots[1].file_base = OTHER;
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    fault_read = read_hung;
    b->options.readers_max = readers_max;
    board_start(b, threads, background_max);
    return b;
}

static void let_go(struct board *b, int n)
{
    for (int i = 0; i < 100; i++)
        sem_post(&go);
    for (int i = 0; i < n; i++)
        CHECK(board_wait(b).status == 0);
}

static void end(struct board *b)
{
    fault_read = NULL;
    board_free(b);
}

static struct monarch_health await_stalled(struct board *b, uint64_t roots)
{
    struct monarch_health found;
    uint64_t until = clock_ns() + 60 * SECOND_NS;
    for (;;) {
        monarch_engine_health(b->engine, &found);
        if (found.stalled == roots)
            return found;
        CHECK(clock_ns() < until);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void files_of_other_roots_are_copied_meanwhile(void)
{
    struct board *b = two_roots(4, 1);
    for (uint32_t i = 0; i < 6; i++)
        board_submit(b, i, MONARCH_DEMAND);
    sem_wait(&arrived);
    sem_wait(&arrived);
    for (uint32_t i = HUNG; i < OTHER; i++)
        board_submit(b, OTHER + i, MONARCH_DEMAND);
    for (uint32_t i = HUNG; i < OTHER; i++) {
        struct monarch_completion done = board_wait(b);
        CHECK(done.status == 0 && done.file >= OTHER);
    }
    let_go(b, 6);
    end(b);
}

static void fill_leaves_threads_of_its_root_to_programs(void)
{
    struct board *b = two_roots(8, 4);
    for (uint32_t i = 0; i < 4; i++)
        board_submit(b, i, MONARCH_BACKGROUND);
    sem_wait(&arrived);
    sem_wait(&arrived);
    board_submit(b, HUNG, MONARCH_DEMAND);
    CHECK(board_wait(b).file == HUNG);
    CHECK(sem_trywait(&arrived) == -1);
    let_go(b, 4);
    end(b);
}

static void what_hangs_holds_no_token(void)
{
    readers_max = 2;
    struct board *b = two_roots(8, 4);
    board_submit(b, 0, MONARCH_BACKGROUND);
    board_submit(b, 1, MONARCH_BACKGROUND);
    sem_wait(&arrived);
    sem_wait(&arrived);
    board_submit(b, OTHER + HUNG, MONARCH_BACKGROUND);
    await_stalled(b, 1);
    CHECK(board_wait(b).file == OTHER + HUNG);
    let_go(b, 2);
    end(b);
    readers_max = 0;
}

static void fill_of_other_roots_goes_on(void)
{
    struct board *b = two_roots(8, 2);
    for (uint32_t i = 0; i < 4; i++)
        board_submit(b, i, MONARCH_BACKGROUND);
    sem_wait(&arrived);
    sem_wait(&arrived);
    for (uint32_t i = HUNG; i < OTHER; i++)
        board_submit(b, OTHER + i, MONARCH_BACKGROUND);
    for (uint32_t i = HUNG; i < OTHER; i++)
        CHECK(board_wait(b).file >= OTHER);
    CHECK(await_stalled(b, 1).stuck_background == 2);
    let_go(b, 4);
    end(b);
}

static void nobody_waits_for_a_root_that_does_not_answer(void)
{
    struct board *b = two_roots(4, 1);
    for (uint32_t i = 0; i < 3; i++) /* two run, one is queued */
        board_submit(b, i, MONARCH_DEMAND);
    CHECK(await_stalled(b, 1).stuck_demand == 2);
    for (uint32_t i = 0; i < 3; i++)
        CHECK(board_state(b, i) == STATE_WORD(REPLICA_STAGING, 0, REASON_BUSY));
    let_go(b, 3);
    CHECK(await_stalled(b, 0).stuck_demand == 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(STATE_OF(board_state(b, i)) == REPLICA_READY);
        CHECK(board_replica_right(b, i));
    }
    end(b);
}

static void one_file_that_hangs_is_given_up_and_its_root_is_not(void)
{
    struct board *b = two_roots(8, 1);
    board_submit(b, 0, MONARCH_DEMAND);
    await_stalled(b, 1);
    board_submit(b, HUNG, MONARCH_DEMAND); /* of the same root, and readable */
    CHECK(board_wait(b).file == HUNG);
    await_stalled(b, 0);
    CHECK(board_state(b, 0) == STATE_WORD(REPLICA_STAGING, 0, 0));
    struct monarch_health found;
    uint64_t until = clock_ns() + 3 * SECOND_NS / 2;
    do {
        monarch_engine_health(b->engine, &found);
        CHECK(found.stalled == 0 && found.stuck_demand == 1);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    } while (clock_ns() < until);
    let_go(b, 1);
    end(b);
}

/* read_slowly - some bytes arrive, but a chunk takes longer than the longest hang. */
static ssize_t read_slowly(int fd, void *buffer, size_t n)
{
    const struct timespec took = clock_timespec(n * 2000);
    if (n > 8)
        nanosleep(&took, NULL);
    return __real_read(fd, buffer, n);
}

/* copy_slowly - copies a File of an origin last read in such pieces; it never counts as
 * stalled. */
static struct board *copy_slowly(uint32_t chunks, uint32_t piece)
{
    const uint64_t sizes[] = {chunks * (uint64_t)CHUNK_BYTES};
    struct board *b = board_new(1, sizes);
    struct monarch_health found;
    struct monarch_completion done;
    board_start(b, 1, 1);
    atomic_store(&b->engine->transfers.roots[0].piece, piece);
    board_submit(b, 0, MONARCH_DEMAND);
    while (!monarch_engine_completions(b->engine, &done, 1)) {
        monarch_engine_health(b->engine, &found);
        CHECK(found.stalled == 0);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    CHECK(done.status == 0 && board_replica_right(b, 0));
    return b;
}

static void an_origin_that_is_slow_is_no_dead_one(void)
{
    fault_read = read_slowly;
    end(copy_slowly(2, 0)); /* its rate is unknown */
}

/* read_late - an origin of high latency, which returns many bytes at once. */
static ssize_t read_late(int fd, void *buffer, size_t n)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return __real_read(fd, buffer, n);
}

static void an_origin_that_was_slow_once_is_read_in_large_pieces_again(void)
{
    fault_read = read_late;
    struct board *b = copy_slowly(8, 64 << 10);
    CHECK(atomic_load(&b->engine->transfers.roots[0].piece) >= CHUNK_BYTES);
    end(b);
}

static void a_single_root_has_all_threads(void)
{
    struct board *b = board_new_equal(4, HUNG_BYTES);
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    fault_read = read_hung;
    board_start(b, 4, 1);
    for (uint32_t i = 0; i < 4; i++)
        board_submit(b, i, MONARCH_DEMAND);
    for (int i = 0; i < 4; i++)
        sem_wait(&arrived);
    let_go(b, 4);
    end(b);
}

int main(void)
{
    files_of_other_roots_are_copied_meanwhile();
    fill_leaves_threads_of_its_root_to_programs();
    what_hangs_holds_no_token();
    fill_of_other_roots_goes_on();
    nobody_waits_for_a_root_that_does_not_answer();
    one_file_that_hangs_is_given_up_and_its_root_is_not();
    an_origin_that_is_slow_is_no_dead_one();
    an_origin_that_was_slow_once_is_read_in_large_pieces_again();
    a_single_root_has_all_threads();
    return PASS;
}
