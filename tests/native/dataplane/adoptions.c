/* adoptions.c - a leftover Replica is served only if every byte is right. */
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/api/engine.h"
#include "shared/replica_table.h"

enum { BYTES = EXTENT_BYTES + 3 * CHUNK_BYTES + 5 };

static struct board *board;
static char replica[512];

/* leave_replica - the leftovers of an earlier job: the file and its digests. */
static void leave_replica(void)
{
    const uint64_t size = BYTES;
    board = board_new(1, &size);
    board_start(board, 1, 1);
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    board_stop(board);
    board_replica_path(board, 0, replica);
    memset(board->inodes->slots, 0, board->inodes->slot_count * sizeof(struct inode));
    board_start(board, 1, 1);
}

static void write_at(off_t offset, mode_t mode)
{
    CHECK(chmod(replica, 0600) == 0);
    int fd = open(replica, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "?", 1, offset) == 1);
    CHECK(fchmod(fd, mode) == 0);
    close(fd);
}

static void spoil_first(void)
{
    write_at(0, 0400);
}

static void spoil_last(void)
{
    write_at(BYTES - 1, 0400);
}

static void lengthen(void)
{
    write_at(BYTES, 0400);
}

static void shorten(void)
{
    board_resize(replica, BYTES - 1);
}

static void make_writable(void)
{
    CHECK(chmod(replica, 0600) == 0);
}

static void replace_by_link(void)
{
    char origin[512];
    board_origin_path(board, 0, origin);
    CHECK(unlink(replica) == 0 && symlink(origin, replica) == 0);
}

static void replace_by_fifo(void)
{
    CHECK(unlink(replica) == 0 && mkfifo(replica, 0400) == 0);
}

static void spoil_digest(void)
{
    board->digests[1] ^= 1;
}

static void refuse(void (*spoil)(void), uint8_t kind)
{
    leave_replica();
    spoil();
    struct monarch_completion done = board_run(board, 0, kind);
    CHECK(done.status == -EBADMSG && done.bytes == 0);
    CHECK(board_names(board, "") == 0);
    CHECK(STATE_OF(board_state(board, 0)) == REPLICA_STAGING);
    CHECK(board->inodes->slots[0].ino == 0);
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0); /* and a copy works */
    CHECK(board_replica_right(board, 0));
    board_free(board);
}

static void accept_right(uint8_t kind)
{
    struct stat st;
    leave_replica();
    struct monarch_completion done = board_run(board, 0, kind);
    CHECK(done.status == 0 && done.bytes == 0);
    CHECK(board_state(board, 0) == STATE_WORD(REPLICA_READY, 0, 0));
    CHECK(stat(replica, &st) == 0 && replica_find(board->inodes, 0, st.st_ino) == 0);
    monarch_engine_forget(board->engine, 0, st.st_ino);
    CHECK(replica_find(board->inodes, 0, st.st_ino) == -1);
    CHECK(!atomic_load(
        &board->engine->transfers.roots[0].piece)); /* the origin was not read */
    board_free(board);
}

static void report_missing(void)
{
    leave_replica();
    CHECK(unlink(replica) == 0);
    struct monarch_completion done = board_run(board, 0, MONARCH_ADOPT);
    CHECK(done.status == -ENOENT && done.step == MONARCH_STEP_OPEN);
    board_free(board);
}

int main(void)
{
    void (*const ways[])(void) = {spoil_first,     spoil_last,    lengthen,
                                  shorten,         make_writable, replace_by_link,
                                  replace_by_fifo, spoil_digest};
    accept_right(MONARCH_ADOPT);
    accept_right(MONARCH_ADOPT_BACKGROUND);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        refuse(ways[i], i % 2 ? MONARCH_ADOPT : MONARCH_ADOPT_BACKGROUND);
    report_missing();
    return PASS;
}
