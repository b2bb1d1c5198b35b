/* faults.c - whatever the Tier or a system call does, no partial file is published or
 * left behind. */
#include "board.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

enum { BYTES = 3 * CHUNK_BYTES + 5 };

static struct board *board;
static char temporary[512], replica[512];
static int calls, fault_errno;
static void (*tamper)(void);

static ssize_t read_short(int fd, void *buffer, size_t n)
{
    if (n > 1 && ++calls % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_read(fd, buffer, n > 1 && calls % 2 ? n / 2 : n);
}

static ssize_t write_short(int fd, const void *bytes, size_t n)
{
    if (n > 8 && ++calls % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_write(fd, bytes, n > 8 && calls % 2 ? n / 2 : n);
}

static ssize_t read_fails(int fd, void *buffer, size_t n)
{
    if (n >= CHUNK_BYTES && ++calls == 2) {
        errno = fault_errno;
        return -1;
    }
    return __real_read(fd, buffer, n);
}

static ssize_t write_fails(int fd, const void *bytes, size_t n)
{
    if (n >= CHUNK_BYTES && ++calls == 2) {
        errno = fault_errno;
        return -1;
    }
    return __real_write(fd, bytes, n);
}

static ssize_t tamper_at_last_read(int fd, void *buffer, size_t n)
{
    if (n % CHUNK_BYTES == BYTES % CHUNK_BYTES + 1)
        tamper();
    return __real_read(fd, buffer, n);
}

static int rename_unknown(void)
{
    return fault_errno;
}

static void cut(void)
{
    board_resize(temporary, 100);
}

static void grow(void)
{
    board_resize(temporary, BYTES + 100);
}

static void remove_it(void)
{
    CHECK(unlink(temporary) == 0);
}

static void replace(void)
{
    CHECK(unlink(temporary) == 0);
    int fd = open(temporary, O_CREAT | O_WRONLY, 0400);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    close(fd);
}

static void open_up(void)
{
    CHECK(chmod(temporary, 0600) == 0);
}

static void occupy(void)
{
    int fd = open(replica, O_CREAT | O_WRONLY, 0400);
    CHECK(fd >= 0);
    close(fd);
}

static void reopen(void)
{
    const uint64_t size = BYTES;
    board = board_new(1, &size);
    board_temporary_path(board, 0, temporary);
    board_replica_path(board, 0, replica);
    calls = 0;
}

static void expect_status(struct monarch_completion done, int status, int step)
{
    if (done.status != status || done.step != step)
        fprintf(stderr, "status %d at step %d\n", done.status, done.step);
    CHECK(done.status == status && done.step == step);
    CHECK(STATE_OF(board_state(board, 0)) == REPLICA_STAGING);
}

/* still_works - the same File is staged once the fault is over. */
static void still_works(void)
{
    fault_read = NULL;
    fault_write = NULL;
    fault_rename = NULL;
    CHECK(board_names(board, "") == 0);
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    CHECK(board_replica_right(board, 0) && board_names(board, "") == 1);
    board_free(board);
}

static void interrupted_calls_are_carried_on(void)
{
    reopen();
    board_start(board, 1, 1);
    fault_read = read_short;
    fault_write = write_short;
    CHECK(board_run(board, 0, MONARCH_BACKGROUND).status == 0 && calls > 8);
    fault_read = NULL;
    fault_write = NULL;
    CHECK(board_replica_right(board, 0) && board_names(board, "") == 1);
    board_free(board);
}

static void failing_calls_are_reported(void)
{
    const int errors[] = {EIO, ENOSPC, EDQUOT, EAGAIN, ESTALE};
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        fault_errno = errors[i];
        reopen();
        board_start(board, 1, 1);
        fault_read = read_fails;
        expect_status(board_run(board, 0, i % 2), -errors[i], MONARCH_STEP_READ);
        still_works();
        reopen();
        board_start(board, 1, 1);
        fault_write = write_fails;
        expect_status(board_run(board, 0, i % 2), -errors[i], MONARCH_STEP_WRITE);
        still_works();
    }
}

static void tampered_copies_are_refused(void)
{
    void (*const ways[])(void) = {cut, grow, replace, open_up, remove_it};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        reopen();
        board_start(board, 1, 1);
        tamper = ways[i];
        fault_read = tamper_at_last_read;
        bool sized = ways[i] == cut || ways[i] == grow;
        expect_status(board_run(board, 0, MONARCH_DEMAND),
                      ways[i] == remove_it ? -ENOENT : -EBADMSG,
                      sized ? MONARCH_STEP_WRITE : MONARCH_STEP_VERIFY);
        still_works();
    }
}

static void an_own_leftover_is_replaced(void)
{
    reopen();
    int fd = open(temporary, O_CREAT | O_WRONLY, 0400);
    CHECK(fd >= 0 && __real_write(fd, "half", 4) == 4);
    close(fd);
    board_start(board, 1, 1);
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    CHECK(board_replica_right(board, 0) && board_names(board, "") == 1);
    board_free(board);
}

static void a_taken_name_is_reported(int rename_errno)
{
    reopen();
    board_start(board, 1, 1);
    occupy();
    fault_errno = rename_errno;
    fault_rename = rename_errno ? rename_unknown : NULL;
    expect_status(board_run(board, 0, MONARCH_DEMAND), -EEXIST, MONARCH_STEP_PUBLISH);
    CHECK(board_names(board, "") == 1 && unlink(replica) == 0);
    for (uint64_t i = 0; i < board->inodes->slot_count; i++)
        CHECK(board->inodes->slots[i].ino <= 1); /* no trace of a failed copy */
    still_works();
}

static void old_file_systems_link(void)
{
    reopen();
    board_start(board, 1, 1);
    fault_errno = EINVAL;
    fault_rename = rename_unknown;
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    CHECK(board_replica_right(board, 0) && board_names(board, "") == 1);
    fault_rename = NULL;
    board_free(board);
}

static void a_vanished_tier_is_reported(void)
{
    reopen();
    board_start(board, 1, 1);
    CHECK(rmdir(board->tier) == 0);
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == -ENOENT);
    board_stop(board);
    board_start(board, 1, 1); /* without the directory from the start */
    expect_status(board_run(board, 0, MONARCH_DEMAND), -ENOENT, MONARCH_STEP_CREATE);
    CHECK(mkdir(board->tier, 0700) == 0);
    board_free(board);
}

static void a_full_inode_table_is_reported(void)
{
    reopen();
    for (uint64_t i = 0; i < board->inodes->slot_count; i++)
        board->inodes->slots[i] = (struct inode){.ino = 2 + i, .tier = 7};
    board_start(board, 1, 1);
    expect_status(board_run(board, 0, MONARCH_DEMAND), -ENOSPC, MONARCH_STEP_PUBLISH);
    memset(board->inodes->slots, 0, board->inodes->slot_count * sizeof(struct inode));
    still_works();
}

static void impossible_orders_are_refused(void)
{
    const struct monarch_order orders[] = {{.file = 1},
                                           {.file = NONE32},
                                           {.tier = 1},
                                           {.tier = 65535},
                                           {.kind = MONARCH_LOCAL}};
    reopen();
    board_start(board, 1, 1);
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        CHECK(monarch_engine_submit(board->engine, &orders[i], 1) == 1);
        struct monarch_completion done = board_wait(board);
        CHECK(done.status == -EINVAL && done.step == MONARCH_STEP_ORDER);
    }
    still_works();
}

static void a_wrong_device_is_reported(void)
{
    reopen();
    board->catalog->tiers[0].dev++;
    board_start(board, 1, 1);
    expect_status(board_run(board, 0, MONARCH_DEMAND), -EXDEV, MONARCH_STEP_VERIFY);
    board->catalog->tiers[0].dev--;
    still_works();
}

static void a_full_tier_is_reported(void)
{
    struct stat st;
    reopen();
    if (mount("tmpfs", board->tier, "tmpfs", 0, "size=2m,mode=0700")) {
        fprintf(stderr, "a full Tier: not tried, mounting is not permitted\n");
        board_free(board);
        return;
    }
    CHECK(stat(board->tier, &st) == 0);
    board->catalog->tiers[0].dev = st.st_dev;
    board_start(board, 1, 1);
    expect_status(board_run(board, 0, MONARCH_DEMAND), -ENOSPC, MONARCH_STEP_WRITE);
    CHECK(mount("tmpfs", board->tier, "tmpfs", MS_REMOUNT, "size=8m") == 0);
    CHECK(board_names(board, "") == 0);
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    CHECK(board_replica_right(board, 0));
    board_stop(board);
    CHECK(umount(board->tier) == 0);
    board_free(board);
}

static ssize_t look_for_names(int fd, void *buffer, size_t n)
{
    if (n >= CHUNK_BYTES)
        calls += 1 + (board_names(board, "") > 0) * 1000;
    return __real_read(fd, buffer, n);
}

static void a_running_copy_has_no_name(void)
{
    reopen();
    board_start(board, 1, 1);
    fault_none_slow(board->engine);
    fault_read = look_for_names;
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    CHECK(calls == 3);
    fault_read = NULL;
    board_free(board);
}

static void try_all(void)
{
    interrupted_calls_are_carried_on();
    failing_calls_are_reported();
    a_taken_name_is_reported(0);
    a_taken_name_is_reported(ENOSYS);
    old_file_systems_link();
    a_vanished_tier_is_reported();
    a_full_inode_table_is_reported();
    impossible_orders_are_refused();
    a_wrong_device_is_reported();
    a_full_tier_is_reported();
}

int main(void)
{
    a_running_copy_has_no_name();
    try_all();
    fault_itself = ENOENT; /* as older kernels answer unprivileged processes */
    a_running_copy_has_no_name();
    try_all();
    fault_unnamed = EOPNOTSUPP; /* as older and network file systems answer */
    try_all();
    tampered_copies_are_refused();
    an_own_leftover_is_replaced();
    return PASS;
}
