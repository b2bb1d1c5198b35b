/* readers.c - no more Transfers read the origin at once than the number of tokens:
 * programs wait briefly for one, the oldest first, and fill without limit. */
#include "board.h"
#include "fault.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"

enum { SMALL = 1000, CHUNKS = 3 };
enum { WAIT_MS = 100, SOON_MS = 30 };

static sem_t arrived, go;
static atomic_int running, running_max;
static atomic_uint begun;  /* reads */
static uint64_t order[16]; /* the sizes of their files */

static void note_running(int change)
{
    int now = atomic_fetch_add(&running, change) + change;
    int max = atomic_load(&running_max);
    while (now > max && !atomic_compare_exchange_weak(&running_max, &max, now)) {
    }
}

/* read_gated - each read reports its arrival and waits to be let through. */
static ssize_t read_gated(int fd, void *buffer, size_t n)
{
    if (n <= 8)
        return __real_read(fd, buffer, n);
    struct stat st;
    note_running(1);
    CHECK(fstat(fd, &st) == 0);
    order[atomic_fetch_add(&begun, 1) % 16] = (uint64_t)st.st_size;
    sem_post(&arrived);
    while (sem_wait(&go) && errno == EINTR) {
    }
    note_running(-1);
    return __real_read(fd, buffer, n);
}

static ssize_t read_slowly(int fd, void *buffer, size_t n)
{
    if (n <= 8)
        return __real_read(fd, buffer, n);
    note_running(1);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    note_running(-1);
    return __real_read(fd, buffer, n);
}

static struct board *limited(struct board *b, uint32_t tokens)
{
    b->options.readers_max = tokens;
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    running_max = 0;
    begun = 0;
    fault_read = read_gated;
    board_start(b, 10, 4);
    fault_none_slow(b->engine);
    return b;
}

static void open_gate(int n)
{
    while (n-- > 0)
        sem_post(&go);
}

static void end(struct board *b, uint32_t files)
{
    open_gate(100);
    for (uint32_t i = 0; i < files; i++)
        CHECK(board_wait(b).status == 0);
    fault_read = NULL;
    for (uint32_t i = 0; i < b->files; i++)
        CHECK(board_replica_right(b, i));
    board_free(b);
}

static bool arrives_within(int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms * (long)MS_NS;
    until.tv_sec += until.tv_nsec / (long)SECOND_NS;
    until.tv_nsec %= (long)SECOND_NS;
    while (sem_timedwait(&arrived, &until))
        if (errno == ETIMEDOUT)
            return false;
    return true;
}

static struct monarch_readers readers_of(struct board *b)
{
    struct monarch_readers found;
    monarch_engine_readers(b->engine, &found);
    return found;
}

/* most_at_once - the maximum of 12 that read at once; 0: some waited too long. */
static int most_at_once(uint32_t tokens)
{
    struct board *b = limited(board_new_equal(12, SMALL), tokens);
    uint64_t began = clock_ns();
    fault_read = read_slowly;
    for (uint32_t i = 0; i < 12; i++)
        board_submit(b, i, i % 3 ? MONARCH_DEMAND : MONARCH_BACKGROUND);
    end(b, 12);
    return clock_ns() - began < WAIT_MS * MS_NS ? running_max : 0;
}

static void no_more_read_at_once_than_there_are_tokens(void)
{
    int most, tries = 0;
    while (!(most = most_at_once(2)))
        CHECK(tries++ < 50);
    CHECK(most == 2);
}

static void without_a_limit_all_read(void)
{
    struct board *b = limited(board_new_equal(6, SMALL), 0);
    monarch_engine_set_readers(b->engine, 1);
    for (uint32_t i = 0; i < 6; i++)
        board_submit(b, i, MONARCH_DEMAND);
    for (int i = 0; i < 6; i++)
        sem_wait(&arrived);
    CHECK(readers_of(b).demand == 0);
    end(b, 6);
}

static void a_program_waits_a_little_and_reads_all_the_same(void)
{
    struct board *b = limited(board_new_equal(2, SMALL), 1);
    board_submit(b, 0, MONARCH_DEMAND);
    sem_wait(&arrived);
    uint64_t began = clock_ns();
    board_submit(b, 1, MONARCH_DEMAND);
    sem_wait(&arrived); /* although the first one still reads */
    CHECK(clock_ns() - began >= WAIT_MS * MS_NS);
    struct monarch_readers found = readers_of(b);
    CHECK(found.reading == 2 && found.demand == 2 && found.background == 0);
    end(b, 2);
}

static void fill_waits_as_long_as_it_takes(void)
{
    struct board *b = limited(board_new_equal(2, SMALL), 1);
    board_submit(b, 0, MONARCH_DEMAND);
    sem_wait(&arrived);
    board_submit(b, 1, MONARCH_BACKGROUND);
    CHECK(!arrives_within(2 * WAIT_MS));
    CHECK(readers_of(b).lacking);
    open_gate(1);
    sem_wait(&arrived);
    CHECK(!readers_of(b).lacking);
    CHECK(readers_of(b).background == 1);
    end(b, 2);
}

static void fill_gives_its_token_to_a_program_after_its_read(void)
{
    struct board *b = limited(board_new_equal(2, CHUNKS * (uint64_t)CHUNK_BYTES), 1);
    board_submit(b, 0, MONARCH_BACKGROUND);
    sem_wait(&arrived); /* in its first chunk */
    board_submit(b, 1, MONARCH_DEMAND);
    CHECK(!arrives_within(SOON_MS));
    open_gate(1 + CHUNKS);
    CHECK(board_wait(b).file == 1);
    CHECK(running_max == 1);
    end(b, 1);
}

/* the_oldest_is_next - false: it took so long that some did not wait for their turn. */
static bool the_oldest_is_next(void)
{
    enum { WAITERS = 5 };
    uint64_t sizes[WAITERS + 1];
    for (uint32_t i = 0; i <= WAITERS; i++)
        sizes[i] = SMALL + i;
    struct board *b = limited(board_new(WAITERS + 1, sizes), 1);
    board_submit(b, 0, MONARCH_DEMAND);
    sem_wait(&arrived);
    uint64_t began = clock_ns();
    for (uint32_t i = 1; i <= WAITERS; i++)
        board_submit(b, i, MONARCH_DEMAND);
    while (readers_of(b).demand < WAITERS + 1)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    end(b, WAITERS + 1);
    if (clock_ns() - began >= WAIT_MS * MS_NS)
        return false;
    for (uint32_t i = 0; i <= WAITERS; i++)
        CHECK(order[i] == SMALL + i);
    return true;
}

static void the_oldest_gets_the_next_token(void)
{
    for (int tries = 0; !the_oldest_is_next(); tries++)
        CHECK(tries < 50);
}

static void more_tokens_are_used_at_once(void)
{
    struct board *b = limited(board_new_equal(4, SMALL), 1);
    board_submit(b, 0, MONARCH_DEMAND);
    sem_wait(&arrived);
    board_submit(b, 1, MONARCH_BACKGROUND);
    board_submit(b, 2, MONARCH_BACKGROUND);
    CHECK(!arrives_within(SOON_MS));
    board_submit(b, 3, MONARCH_DEMAND);
    uint64_t began = clock_ns();
    monarch_engine_set_readers(b->engine, 4);
    for (int i = 0; i < 3; i++)
        sem_wait(&arrived);
    CHECK(clock_ns() - began < WAIT_MS * MS_NS);
    CHECK(readers_of(b).reading == 4);
    end(b, 4);
}

int main(void)
{
    no_more_read_at_once_than_there_are_tokens();
    without_a_limit_all_read();
    a_program_waits_a_little_and_reads_all_the_same();
    fill_waits_as_long_as_it_takes();
    fill_gives_its_token_to_a_program_after_its_read();
    the_oldest_gets_the_next_token();
    more_tokens_are_used_at_once();
    return PASS;
}
