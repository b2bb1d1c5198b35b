/* storm.c - programs, agent and copy threads at once: every File ends READY and right. */
#include "board.h"

#include <linux/futex.h>
#include <pthread.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES = 600, PROGRAMS = 6, BYTES = 20000 };

static struct board *board;
static atomic_uint finished;

static void open_cold(uint32_t program, uint32_t file)
{
    const struct timespec slice = {.tv_nsec = 100000000};
    uint32_t *word = (uint32_t *)((char *)board->catalog + board->catalog->states) +
                     file;
    for (uint32_t seen; STATE_OF(seen = board_state(board, file)) != REPLICA_READY;) {
        if (STATE_OF(seen) == REPLICA_ABSENT)
            board_ask(board, program, file + 1ull);
        syscall(SYS_futex, word, FUTEX_WAIT, seen, &slice, NULL, 0);
    }
}

static void *run_program(void *number)
{
    uint32_t program = (uint32_t)(uintptr_t)number;
    for (uint32_t i = 0; i < FILES; i++)
        open_cold(program, (i * 7 + program * 13) % FILES);
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* stage - the agent's decision: stage absent Files, some of them in the background. */
static void stage(uint32_t file)
{
    if (STATE_OF(board_state(board, file)) == REPLICA_ABSENT)
        board_submit(board, file, file % 3 == 0);
}

static void collect(void)
{
    struct monarch_completion done[64];
    uint32_t n = monarch_engine_completions(board->engine, done, 64);
    for (uint32_t i = 0; i < n; i++)
        CHECK(done[i].status == 0 && done[i].bytes == BYTES);
}

int main(void)
{
    pthread_t programs[PROGRAMS];
    uint32_t files[64];
    board = board_new_equal(FILES, BYTES);
    board_start(board, 3, 2);
    for (uintptr_t i = 0; i < PROGRAMS; i++)
        CHECK(!pthread_create(&programs[i], NULL, run_program, (void *)i));
    while (atomic_load(&finished) < PROGRAMS) {
        struct pollfd fd = {.fd = monarch_engine_event_fd(board->engine),
                            .events = POLLIN};
        poll(&fd, 1, 100);
        uint32_t n = monarch_engine_requests(board->engine, files, 64);
        for (uint32_t i = 0; i < n; i++)
            stage(files[i]);
        collect();
    }
    for (int i = 0; i < PROGRAMS; i++)
        pthread_join(programs[i], NULL);
    CHECK(board_names(board, "") == FILES);
    for (uint32_t i = 0; i < FILES; i++)
        CHECK(board_replica_right(board, i));
    board_free(board);
    return PASS;
}
