/* origins.c - a File that differs, or now differs, from the Catalog is never staged. */
#include "board.h"
#include "fault.h"

#include "dataplane/base/clock.h"
#include "shared/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 3 * CHUNK_BYTES + 5 };

static struct board *board;
static char origin[512];
static void (*change)(void);
static int reads;

static void touch(void)
{
    CHECK(utimensat(AT_FDCWD, origin, NULL, 0) == 0);
}

static void append(void)
{
    int fd = open(origin, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && __real_write(fd, "x", 1) == 1);
    close(fd);
}

static void cut(void)
{
    CHECK(truncate(origin, BYTES - 1) == 0);
}

static void cut_deep(void)
{
    CHECK(truncate(origin, 10) == 0);
}

static void replace(void)
{
    char other[600];
    struct stat st;
    snprintf(other, sizeof(other), "%s.new", origin);
    int fd = open(other, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0 && stat(origin, &st) == 0);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    CHECK(futimens(fd, times) == 0 && rename(other, origin) == 0);
    close(fd);
}

static void change_mode(void)
{
    CHECK(chmod(origin, 0640) == 0); /* only the ctime changes */
}

static void announce(void)
{
    board->flags->written[0] = 1;
}

static void close_root(void)
{
    board->flags->roots[0] = 1;
}

static void fifo(void)
{
    CHECK(unlink(origin) == 0 && mkfifo(origin, 0600) == 0);
}

static void link_away(void)
{
    CHECK(unlink(origin) == 0 && symlink("/etc/passwd", origin) == 0);
}

static void vanish(void)
{
    CHECK(unlink(origin) == 0);
}

static void (*const changes[])(void) = {touch,   append,      cut,      cut_deep,
                                        replace, change_mode, announce, close_root};
enum { CHANGES = sizeof(changes) / sizeof(changes[0]) };

static ssize_t change_at_second_read(int fd, void *buffer, size_t n)
{
    if (n >= CHUNK_BYTES && ++reads == 2)
        change();
    return __real_read(fd, buffer, n);
}

static void open_board(void (*how)(void))
{
    const uint64_t size = BYTES;
    board = board_new(1, &size);
    board_origin_path(board, 0, origin);
    change = how;
    reads = 0;
    board_start(board, 1, 1);
}

static void expect_nothing_staged(struct monarch_completion done, int status)
{
    if (done.status != status)
        fprintf(stderr, "status %d at step %d\n", done.status, done.step);
    CHECK(done.status == status);
    CHECK(board_names(board, "") == 0);
    CHECK(STATE_OF(board_state(board, 0)) == REPLICA_STAGING); /* left to the agent */
    CHECK(board->inodes->slots[0].ino <= 1);
    board_free(board);
}

static void changed_before(void (*how)(void), int status)
{
    open_board(how);
    how();
    expect_nothing_staged(board_run(board, 0, MONARCH_DEMAND), status);
}

static void changed_during(void (*how)(void), uint8_t kind)
{
    open_board(how);
    fault_read = change_at_second_read;
    struct monarch_completion done = board_run(board, 0, kind);
    fault_read = NULL;
    CHECK(reads >= 2 && done.bytes > 0);
    expect_nothing_staged(done, -ESTALE);
}

static ssize_t read_one_more(int fd, void *buffer, size_t n)
{
    ssize_t got = __real_read(fd, buffer, n);
    bool last = got % CHUNK_BYTES == BYTES % CHUNK_BYTES;
    return last && (size_t)got < n ? got + 1 : got;
}

/* growth_that_only_the_read_shows - network file systems answer fstat from memory. */
static void growth_that_only_the_read_shows(void)
{
    open_board(NULL);
    fault_read = read_one_more;
    struct monarch_completion done = board_run(board, 0, MONARCH_DEMAND);
    fault_read = NULL;
    expect_nothing_staged(done, -ESTALE);
}

/* ---- requests to the origin ----------------------------------------------------- */

enum { SMALL = 1000 };

static ssize_t count_reads(int fd, void *buffer, size_t n)
{
    reads += n > SMALL / 2;
    return __real_read(fd, buffer, n);
}

/* a_small_file_is_read_once - the read that does not get the byte beyond its end also
 * returns its bytes. */
static void a_small_file_is_read_once(void)
{
    const uint64_t size = SMALL;
    board = board_new(1, &size);
    board_start(board, 1, 1);
    reads = 0;
    fault_read = count_reads;
    CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
    fault_read = NULL;
    CHECK(reads == 1 && board_replica_right(board, 0));
    board_free(board);
}

enum { LONG_AGO_S = 1000000000 };
static struct statx truth;
static bool forced; /* the last question */
static int asked, forces, refusal;

static int answer(unsigned flags, unsigned mask, void *out)
{
    asked++;
    forced = (flags & AT_STATX_SYNC_TYPE) == AT_STATX_FORCE_SYNC;
    forces += forced;
    CHECK(!(mask & STATX_ATIME)); /* a copy has made it stale: the client would ask */
    memcpy(out, &truth, sizeof(truth));
    return refusal;
}

/* copied - copies a File with these times at the origin and in the Catalog. */
static struct monarch_completion copied(time_t mtime_s, time_t ctime_s)
{
    open_board(NULL);
    uint32_t root;
    struct entry *entry = (void *)(uintptr_t)catalog_entry(board->catalog, 0, &root);
    CHECK(statx(AT_FDCWD, origin, 0, STATX_BASIC_STATS, &truth) == 0);
    truth.stx_mtime = (struct statx_timestamp){.tv_sec = mtime_s};
    truth.stx_ctime = (struct statx_timestamp){.tv_sec = ctime_s};
    entry->mtime_ns = (int64_t)mtime_s * (int64_t)SECOND_NS;
    entry->ctime_ns = (int64_t)ctime_s * (int64_t)SECOND_NS;
    asked = forces = 0;
    fault_statx = answer;
    struct monarch_completion done = board_run(board, 0, MONARCH_DEMAND);
    fault_statx = NULL;
    CHECK(asked == 2 && forces == forced); /* before and after; only after proves it */
    return done;
}

/* only_recent_files_are_asked_of_the_server - the client's cached data of the others is
 * older than the copy, and right. */
static void only_recent_files_are_asked_of_the_server(void)
{
    const struct {
        time_t mtime_s, ctime_s;
        bool forced;
    } cases[] = {{LONG_AGO_S, LONG_AGO_S, false},
                 {time(NULL) - 3700, time(NULL) - 3700, false},
                 {LONG_AGO_S, time(NULL) - 3500, true},
                 {time(NULL) - 3500, LONG_AGO_S, true},
                 {time(NULL) + 7200, LONG_AGO_S, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK(copied(cases[i].mtime_s, cases[i].ctime_s).status == 0);
        CHECK(forced == cases[i].forced);
        board_free(board);
    }
}

/* where_statx_is_not_known_fstat_decides - its times are the current ones. */
static void where_statx_is_not_known_fstat_decides(void)
{
    const int unknown[] = {ENOSYS, EPERM};
    for (size_t i = 0; i < 2; i++) {
        refusal = unknown[i];
        open_board(NULL);
        fault_statx = answer;
        CHECK(board_run(board, 0, MONARCH_DEMAND).status == 0);
        fault_statx = NULL;
        board_free(board);
        open_board(append);
        append();
        fault_statx = answer;
        struct monarch_completion done = board_run(board, 0, MONARCH_DEMAND);
        fault_statx = NULL;
        expect_nothing_staged(done, -ESTALE);
    }
    refusal = 0;
}

int main(void)
{
    only_recent_files_are_asked_of_the_server();
    where_statx_is_not_known_fstat_decides();
    growth_that_only_the_read_shows();
    a_small_file_is_read_once();
    for (int i = 0; i < CHANGES; i++) {
        changed_before(changes[i], -ESTALE);
        changed_during(changes[i], MONARCH_DEMAND);
        changed_during(changes[i], MONARCH_BACKGROUND);
    }
    changed_before(fifo, -ESTALE); /* and does not wait for a writer */
    changed_before(link_away, -ELOOP);
    changed_before(vanish, -ENOENT);
    return PASS;
}
