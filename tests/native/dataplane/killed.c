/* killed.c - killed at any moment, an engine leaves whole Replicas and nothing that
 * could be mistaken for one.  killed TRIALS SEED */
#include "board.h"
#include "fault.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 24, BYTES = CHUNK_BYTES + 4097 };

static struct board *board;

/* copy_until_killed - the agent; reports when its threads are about to run. */
static void copy_until_killed(int ready)
{
    for (uint32_t i = 0; i < FILES; i++)
        board_set_state(board, i, STATE_WORD(REPLICA_STAGING, 0, 0));
    board_start(board, 2, 2);
    for (uint32_t i = 0; i < FILES; i++)
        board_submit(board, i, i % 2);
    CHECK(__real_write(ready, "", 1) == 1);
    for (uint32_t i = 0; i < FILES; i++)
        CHECK(board_wait(board).status == 0);
    for (;;)
        pause();
}

static void expect_whole(unsigned *ready)
{
    unsigned whole = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        char path[512];
        bool right = board_replica_right(board, i);
        board_replica_path(board, i, path);
        CHECK(right || access(path, F_OK) != 0); /* if it exists, it is whole */
        whole += right;
        if (STATE_OF(board_state(board, i)) == REPLICA_READY) {
            CHECK(right);
            ++*ready;
        }
    }
    CHECK(board_names(board, "") == whole + board_names(board, ".part"));
}

static void empty_tier(void)
{
    char command[600];
    snprintf(command, sizeof(command), "find '%s' -mindepth 1 -delete", board->tier);
    CHECK(system(command) == 0);
    memset(board->inodes->slots, 0, board->inodes->slot_count * sizeof(struct inode));
}

static unsigned trial(unsigned delay_us)
{
    int ends[2];
    char byte;
    unsigned ready = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        copy_until_killed(ends[1]);
    CHECK(__real_read(ends[0], &byte, 1) == 1);
    usleep(delay_us);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    close(ends[0]);
    close(ends[1]);
    board->engine = NULL; /* it belonged to the child */
    expect_whole(&ready);
    empty_tier();
    return ready;
}

int main(int argc, char **argv)
{
    int trials = argc > 1 ? atoi(argv[1]) : 100;
    unsigned middle = 0;
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    board = board_new_equal(FILES, BYTES);
    for (int i = 0; i < trials; i++) {
        fault_unnamed = i % 2 ? EOPNOTSUPP : 0;
        unsigned ready = trial((unsigned)(rand() % 40000));
        middle += ready > 0 && ready < FILES;
    }
    printf("%d trials, %u of them killed between the first and the last copy\n", trials,
           middle);
    CHECK(trials < 20 || middle > 0);
    board_free(board);
    return PASS;
}
