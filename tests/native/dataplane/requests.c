/* requests.c - a program's request reaches the agent once, and nothing else does. */
#include "board.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"
#include "fault.h"

enum { MANY = FILES_MAX, PATIENCE_MS = 60000, TURNS = 40, FILE_BYTES = 1 };

static struct board *board;
static uint32_t files[2 * FILES_MAX];

static void expect_only(uint32_t file)
{
    CHECK(board_asked(board, files, 8, PATIENCE_MS) == 1 && files[0] == file);
}

static bool silent(void)
{
    struct pollfd fd = {.fd = monarch_engine_event_fd(board->engine), .events = POLLIN};
    return poll(&fd, 1, 0) == 0;
}

/* wait_empty - waits until the listener has checked every slot. */
static void wait_empty(void)
{
    for (uint32_t i = 0; i < REQUEST_SLOTS; i++)
        while (atomic_load((_Atomic uint64_t *)&board->requests->slots[i]))
            poll(NULL, 0, 1);
}

static void garbage_is_ignored(void)
{
    const uint64_t garbage[] = {MANY + 1ull, NONE32, NONE32 + 1ull, 1ull << 63,
                                UINT64_MAX};
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        board_ask(board, (uint32_t)i, garbage[i]);
    board_ask(board, 100, 7 + 1);
    expect_only(7);
    wait_empty();
    CHECK(silent());
}

static void only_files_worth_asking_for_come_through(void)
{
    const uint32_t dropped[] = {
        STATE_WORD(REPLICA_STAGING, 0, 0),
        STATE_WORD(REPLICA_EVICTING, 0, 0),
        STATE_WORD(REPLICA_ABSENT, 0, REASON_NO_ROOM),
        STATE_WORD(REPLICA_ABSENT, 0, REASON_ERROR),
        99,
    };
    for (uint32_t i = 0; i < 5; i++) {
        board_set_state(board, i, dropped[i]);
        board_ask(board, i, i + 1ull);
    }
    wait_empty();
    board_set_state(board, 6, STATE_WORD(REPLICA_READY, 0, 0));
    board_ask(board, 0, 6 + 1); /* its Replica could not be opened */
    expect_only(6);
    CHECK(silent());
}

static void a_file_comes_once_until_it_is_taken(void)
{
    for (int round = 0; round < 2; round++) {
        for (uint32_t slot = 0; slot < 50; slot++)
            board_ask(board, slot, 9 + 1);
        wait_empty();
        board_ask(board, 0,
                  10 + 1); /* is forwarded after all that was emptied before */
        uint32_t n = 0;
        while (n == 0 || files[n - 1] != 10) {
            CHECK(n < 2);
            n += board_asked(board, files + n, 1, PATIENCE_MS);
        }
        CHECK(n == 2 && files[0] == 9);
    }
}

/* expect_soon - requests arrive at once, repeatedly, not with the next heartbeat. */
static void expect_soon(void)
{
    uint64_t began = clock_ns();
    for (uint32_t i = 0; i < TURNS; i++) {
        board_ask(board, i, 20 + i + 1);
        expect_only(20 + i);
    }
    CHECK(clock_ns() - began < TURNS * HEARTBEAT_MS * MS_NS / 4);
}

static void a_lost_bell_costs_one_heartbeat(void)
{
    uint64_t began = clock_ns();
    atomic_store((_Atomic uint64_t *)&board->requests->slots[3], 11 + 1);
    expect_only(11);
    CHECK(clock_ns() - began < 10 * SECOND_NS);
}

/* a_lost_call_costs_one_heartbeat - a program was killed between filling its slot and
 * waking the thread. */
static void a_lost_call_costs_one_heartbeat(void)
{
    uint64_t began = clock_ns();
    board_wait_idle(board, 1);
    atomic_store((_Atomic uint32_t *)&board->requests->called, 1);
    atomic_store((_Atomic uint64_t *)&board->requests->slots[3], 12 + 1);
    expect_only(12);
    CHECK(clock_ns() - began < 10 * SECOND_NS);
    expect_soon();
}

/* an_idle_thread_looks_at_the_slots - and the listener is not woken. */
static void an_idle_thread_looks_at_the_slots(void)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&board->requests->bell;
    uint32_t before = atomic_load(bell);
    uint64_t began = clock_ns();
    for (uint32_t i = 0; i < TURNS; i++) {
        board_wait_idle(board, 1);
        board_ask(board, i, 20 + i + 1);
        expect_only(20 + i);
    }
    CHECK(clock_ns() - began < TURNS * HEARTBEAT_MS * MS_NS / 4);
    CHECK(atomic_load(bell) - before < TURNS / 4); /* except for a late thread */
}

static sem_t hangs, answers;

static ssize_t hang(int fd, void *buffer, size_t n)
{
    if (n != FILE_BYTES + 1)
        return __real_read(fd, buffer, n);
    sem_post(&hangs);
    while (sem_wait(&answers) && errno == EINTR) {
    }
    return __real_read(fd, buffer, n);
}

/* without_an_idle_thread_the_listener_looks - all copy, and the origin hangs. */
static void without_an_idle_thread_the_listener_looks(void)
{
    sem_init(&hangs, 0, 0);
    sem_init(&answers, 0, 0);
    fault_read = hang;
    board_submit(board, 0, MONARCH_DEMAND);
    sem_wait(&hangs);
    expect_soon();
    fault_read = NULL;
    sem_post(&answers);
    CHECK(board_wait(board).status == 0);
}

static void nothing_is_lost_when_the_queue_is_full(void)
{
    static bool seen[MANY];
    uint32_t asked = 0, got = 0;
    while (asked < REQUESTED_MAX) {
        for (uint32_t slot = 0; slot < REQUEST_SLOTS; slot++)
            board_ask(board, slot, ++asked);
        wait_empty();
    }
    for (uint32_t slot = 0; asked < MANY; slot++)
        board_ask(board, slot, ++asked); /* no space: they stay in their slots */
    while (got < MANY) {
        uint32_t n = board_asked(board, files, 100, PATIENCE_MS);
        CHECK(n > 0);
        for (uint32_t i = 0; i < n; i++) {
            CHECK(files[i] < MANY && !seen[files[i]]);
            seen[files[i]] = true;
        }
        got += n;
    }
    CHECK(silent());
}

static void the_heart_beats_until_the_end(void)
{
    _Atomic uint64_t *beat = (_Atomic uint64_t *)&board->requests->heartbeat_ns;
    for (int i = 0; i < 3; i++) {
        uint64_t before = atomic_load(beat), began = clock_ns();
        CHECK(before <= began);
        while (atomic_load(beat) == before)
            CHECK(clock_ns() - began < 10 * SECOND_NS);
    }
    board_stop(board);
    uint64_t last = atomic_load(beat);
    poll(NULL, 0, 2 * HEARTBEAT_MS);
    CHECK(atomic_load(beat) == last);
}

int main(void)
{
    _Static_assert((int)REQUESTED_MAX + (int)REQUEST_SLOTS == (int)MANY,
                   "queue and slots");
    board = board_new_equal(MANY, FILE_BYTES);
    board_start(board, 1, 1);
    garbage_is_ignored();
    a_file_comes_once_until_it_is_taken();
    an_idle_thread_looks_at_the_slots();
    without_an_idle_thread_the_listener_looks();
    a_lost_bell_costs_one_heartbeat();
    a_lost_call_costs_one_heartbeat();
    nothing_is_lost_when_the_queue_is_full();
    only_files_worth_asking_for_come_through();
    the_heart_beats_until_the_end();
    board_free(board);
    return PASS;
}
