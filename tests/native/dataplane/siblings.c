/* siblings.c - Replicas of another job: linked, or unused if files or links fail. */
#include "ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "fault.h"
#include "shared/catalog.h"
#include "shared/progress.h"

enum { SMALL = 70001, PATIENCE_MS = 10000, JOBS_MAX = 64 };

/* The wait for a job without progress. */
static const uint64_t SILENT_NS = 3 * SECOND_NS;

static char run[300], other_tier[300]; /* of the other job */
static bool other_is_lower;            /* its generation is */
static uint32_t other_come = PROGRESS_BEGUN;
static uint32_t other_number; /* of several jobs */
static bool other_is_dead;

static void path_in(const char *folder, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", folder, name);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

/* copy_file - a Replica of the other job: the origin's file under the Replica's name. */
static void copy_file(const struct board *b, uint32_t file)
{
    char from[512], own[512], to[512];
    uint8_t *bytes = malloc(b->sizes[file]);
    const struct index *ix = catalog_block(b->catalog, 0);
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        clock_timespec((uint64_t)index_first(ix, file)->mtime_ns)};
    board_origin_path(b, file, from);
    board_replica_path(b, file, own);
    path_in(other_tier, strrchr(own, '/') + 1, to);
    int fd = open(from, O_RDONLY);
    CHECK(fd >= 0 && read(fd, bytes, b->sizes[file]) == (ssize_t)b->sizes[file]);
    close(fd);
    write_file(to, bytes, b->sizes[file]);
    CHECK(utimensat(AT_FDCWD, to, times, 0) == 0 && chmod(to, 0400) == 0);
    free(bytes);
}

/* write_catalog - the Catalog of the other job, where all Files are in this state. */
static void write_catalog(const struct board *b, uint32_t version, uint32_t word)
{
    char path[512];
    size_t length = b->catalog->seg.length;
    struct catalog *other = malloc(length);
    CHECK(other);
    memcpy(other, b->catalog, length);
    other->seg.generation = b->catalog->seg.generation + (other_is_lower ? -1 : 1) +
                            other_number;
    other->seg.version = version;
    memcpy(other->tiers[0].path, other_tier, strlen(other_tier) + 1);
    for (uint32_t i = 0; i < b->files; i++)
        atomic_store(replica_word(other, i), word);
    path_in(run, "catalog", path);
    write_file(path, other, length);
    free(other);
}

/* write_requests - what its agent shares: it is alive, and reads the first File. */
static void write_requests(const struct board *b)
{
    char path[512];
    static struct requests other;
    memcpy(&other, b->requests, sizeof(struct segment)); /* the engine uses the rest */
    other.heartbeat_ns = other_is_dead ? 0 : clock_ns();
    progress_store(&other, 0, other_come);
    path_in(run, "requests", path);
    write_file(path, &other, sizeof(other));
}

static void other_begin(const struct board *b, uint32_t version, uint32_t word)
{
    snprintf(run, sizeof(run), "%s/run", b->base);
    snprintf(other_tier, sizeof(other_tier), "%s/other", b->base);
    CHECK(mkdir(run, 0700) == 0 && mkdir(other_tier, 0700) == 0);
    for (uint32_t i = 0; i < b->files; i++)
        copy_file(b, i);
    write_catalog(b, version, word);
    write_requests(b);
}

static const uint32_t ready = STATE_WORD(REPLICA_READY, 0, 0);

static void truncate_segment(const char *name, off_t bytes)
{
    char path[512];
    path_in(run, name, path);
    CHECK(truncate(path, bytes) == 0);
}

static bool is_linked(uint32_t file)
{
    char path[512];
    struct stat st;
    board_replica_path(big.board, file, path);
    return board_replica_right(big.board, file) && stat(path, &st) == 0 &&
           st.st_nlink == 2;
}

static bool is_copied(uint32_t file)
{
    char path[512];
    struct stat st;
    board_replica_path(big.board, file, path);
    return board_replica_right(big.board, file) && stat(path, &st) == 0 &&
           st.st_nlink == 1;
}

/* begin - a job with one File, and another one with or without it. */
static void begin(uint64_t size, uint32_t version, uint32_t word)
{
    big.board = board_new_equal(1, size);
    big.board->options.alone = big.board->options.shares_memory = true;
    big.table = board_table(big.board, (uint32_t)((size - 1) / EXTENT_BYTES + 1),
                            EXTENT_BYTES, 200 << 20);
    big.board->catalog->cold_timeout_ns = 1000 * SECOND_NS;
    other_begin(big.board, version, word);
    board_start(big.board, 3, 2);
}

static void begin_large(void)
{
    begin(LARGE_SIZE, LAYOUT_VERSION, ready);
}

static void begin_small(uint32_t word)
{
    begin(SMALL, LAYOUT_VERSION, word);
}

static int add(void)
{
    return monarch_engine_add_sibling(big.board->engine, run);
}

/* want_small - a program requests a small File. */
static void want_small(void)
{
    board_ask(big.board, 0, 0 + 1);
    large_until(large_is_ready, 0);
}

/* ---- small Files ------------------------------------------------------------------------ */

static void a_small_file_is_linked(void)
{
    begin_small(ready);
    CHECK(add() == 0 && add() == -EEXIST);
    want_small();
    CHECK(is_linked(0));
    large_end();
}

static void a_job_of_another_version_is_none(void)
{
    begin(SMALL, LAYOUT_VERSION + 1, ready);
    CHECK(add() == -EINVAL);
    want_small();
    CHECK(is_copied(0));
    large_end();
}

static void a_truncated_catalog_is_refused(void)
{
    static const off_t bytes[] = {0, 8, sizeof(struct segment), sizeof(struct catalog)};
    begin_small(ready);
    for (size_t i = sizeof(bytes) / sizeof(*bytes); i-- > 0;) {
        truncate_segment("catalog", bytes[i]);
        CHECK(add() == -EINVAL);
    }
    want_small();
    CHECK(is_copied(0));
    large_end();
}

static void truncated_requests_are_refused(void)
{
    begin_small(ready);
    truncate_segment("requests", sizeof(struct requests) - 1);
    CHECK(add() == -EINVAL);
    large_end();
}

static void a_catalog_that_is_truncated_later_hurts_nobody(off_t bytes)
{
    begin_small(ready);
    CHECK(add() == 0);
    truncate_segment("catalog", bytes);
    truncate_segment("requests", bytes);
    want_small();
    CHECK(is_copied(0));
    large_end();
}

/* The job waits for the other one, which is reading the File or about to. */
static void a_wait_ends_when_the_catalog_is_truncated(bool lower, uint32_t come)
{
    other_is_lower = lower;
    other_come = come;
    begin_small(STATE_WORD(REPLICA_STAGING, 0, 0));
    CHECK(add() == 0);
    board_ask(big.board, 0, 0 + 1);
    poll(NULL, 0, 200);
    CHECK(!large_is_ready(0));
    truncate_segment("catalog", 0);
    large_until(large_is_ready, 0);
    CHECK(is_copied(0));
    large_end();
}

/* is_copied_at_once - the job does not wait for the other; its File has this state. */
static void is_copied_at_once(uint32_t word)
{
    begin_small(word);
    CHECK(add() == 0);
    uint64_t began = clock_ns();
    want_small();
    CHECK(is_copied(0) && clock_ns() - began < SILENT_NS);
    large_end();
}

/* Both check the File at the same moment: the one of the lower generation does not
 * wait. The wait for its agent would last until it is considered dead. */
static void the_job_of_the_lower_generation_reads(void)
{
    other_is_lower = false;
    other_come = PROGRESS_LOOKS;
    is_copied_at_once(STATE_WORD(REPLICA_STAGING, 0, 0));
}
/* add_another - the other job has ended, and this is the next one. */
static int add_another(bool dead)
{
    char path[512];
    path_in(run, "catalog", path);
    CHECK(unlink(path) == 0);
    path_in(run, "requests", path);
    CHECK(unlink(path) == 0);
    other_number++;
    other_is_dead = dead;
    write_catalog(big.board, LAYOUT_VERSION, ready);
    write_requests(big.board);
    return add();
}

static void jobs_that_have_ended_leave_their_places(void)
{
    begin_small(ready);
    for (int i = 0; i < JOBS_MAX; i++)
        CHECK(add_another(true) == 0);
    for (int i = 0; i < JOBS_MAX; i++)
        CHECK(add_another(false) == 0);
    CHECK(add_another(false) == -ENOSPC);
    want_small();
    CHECK(is_linked(0));
    large_end();
    other_number = 0;
}

/* ---- large Files ------------------------------------------------------------------------ */

static void fill(void)
{
    static const uint32_t to_read[1];
    monarch_engine_fill(big.board->engine,
                        &(struct monarch_fill){.to_read = to_read, .read_count = 1});
}

static void request(void)
{
    range_read(big.board, 0, (struct page_range){0, 77, 1});
}

static void a_large_file_is_linked(void (*begins)(void))
{
    begin_large();
    CHECK(add() == 0);
    begins();
    large_until(large_is_ready, 0);
    CHECK(is_linked(0));
    CHECK(large_until_idle().origin_read_bytes == 0);
    large_end();
}

static void fill_waits_for_a_large_file_that_is_read(void)
{
    other_come = PROGRESS_BEGUN;
    begin(LARGE_SIZE, LAYOUT_VERSION, STATE_WORD(REPLICA_STAGING, 0, 0));
    CHECK(add() == 0);
    fill();
    poll(NULL, 0, 200);
    struct monarch_tally tally;
    monarch_table_tally(big.table, &tally);
    CHECK(tally.in_flight && tally.origin_read_bytes == 0);
    truncate_segment("catalog", 0);
    large_until(large_is_ready, 0);
    CHECK(is_copied(0));
    large_end();
}

/* Its Replica was evicted, and its progress word is still from the earlier check. */
static void what_the_other_job_has_lost_is_not_waited_for(void)
{
    other_is_lower = true;
    other_come = PROGRESS_LOOKS;
    is_copied_at_once(STATE_WORD(REPLICA_ABSENT, 0, 0));
    other_is_lower = false;
}

static void a_large_file_that_has_begun_is_not_linked(void)
{
    begin_large();
    range_read(big.board, 0, (struct page_range){0, 77, 1});
    CHECK(add() == 0);
    range_read(big.board, 0, (struct page_range){0, 0, pages_of(LARGE_SIZE)});
    large_until(large_is_ready, 0);
    CHECK(is_copied(0));
    large_end();
}

static void a_large_file_whose_link_fails_is_copied(int error)
{
    begin_large();
    CHECK(add() == 0);
    atomic_store(&fault_link, error);
    range_read(big.board, 0, (struct page_range){0, 77, 1});
    CHECK(range_present(big.board, 0) == 1);
    range_read(big.board, 0, (struct page_range){0, 0, pages_of(LARGE_SIZE)});
    large_until(large_is_ready, 0);
    atomic_store(&fault_link, 0);
    CHECK(is_copied(0));
    large_end();
}

int main(void)
{
    a_small_file_is_linked();
    a_job_of_another_version_is_none();
    a_truncated_catalog_is_refused();
    truncated_requests_are_refused();
    a_catalog_that_is_truncated_later_hurts_nobody(0);
    a_catalog_that_is_truncated_later_hurts_nobody(sizeof(struct catalog));
    a_wait_ends_when_the_catalog_is_truncated(false, PROGRESS_BEGUN);
    a_wait_ends_when_the_catalog_is_truncated(true, PROGRESS_LOOKS);
    the_job_of_the_lower_generation_reads();
    jobs_that_have_ended_leave_their_places();
    a_large_file_is_linked(fill);
    a_large_file_is_linked(request);
    fill_waits_for_a_large_file_that_is_read();
    what_the_other_job_has_lost_is_not_waited_for();
    a_large_file_that_has_begun_is_not_linked();
    a_large_file_whose_link_fails_is_copied(ENOSPC);
    a_large_file_whose_link_fails_is_copied(EMLINK);
    return PASS;
}
