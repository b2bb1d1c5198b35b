/* whole.c - a large File for which programs wait: it is first, is read in large
 * requests, and shows its progress, also where another node reads it. */
#include <poll.h>
#include <stdatomic.h>

#include "dataplane/api/engine.h"
#include "dataplane/extents/table.h"
#include "fault.h"
#include "peer.h"
#include "shared/catalog.h"
#include "shared/progress.h"

enum { LARGEST = 4 * CHUNK_BYTES, SIZE = 6 * LARGEST + 5, READS_MAX = 64, FILES = 3 };

static struct board *board;
static size_t lengths[READS_MAX];
static uint32_t come[READS_MAX]; /* before each read */
static int reads, slow_read;

/* note_read - the reads of the origin, one of which may take long. */
static ssize_t note_read(int fd, void *buffer, size_t n)
{
    if (n < CHUNK_BYTES)
        return __real_read(fd, buffer, n);
    CHECK(reads < READS_MAX);
    come[reads] = progress_load(board->requests, 0);
    lengths[reads++] = n;
    if (reads == slow_read)
        poll(NULL, 0, 300);
    return __real_read(fd, buffer, n);
}

static void copy(uint8_t kind, int slow)
{
    const uint64_t size = SIZE;
    board = board_new(1, &size);
    board_start(board, 1, 1);
    fault_none_slow(board->engine);
    reads = 0;
    slow_read = slow;
    fault_read = note_read;
    CHECK(board_run(board, 0, kind).status == 0);
    fault_read = NULL;
    CHECK(board_replica_right(board, 0));
}

static void demand_reads_are_large_and_aligned(void)
{
    copy(MONARCH_DEMAND, 0);
    CHECK(lengths[0] == CHUNK_BYTES && lengths[1] == CHUNK_BYTES);
    CHECK(lengths[2] == 2 * CHUNK_BYTES); /* from here on at multiples of the largest */
    for (int i = 3; i < reads; i++)
        CHECK(lengths[i] == LARGEST);
    CHECK(reads == 3 + 5); /* the last bytes fit into a read of less than a chunk */
    board_free(board);
}

static void fill_reads_are_small(void)
{
    copy(MONARCH_BACKGROUND, 0);
    for (int i = 0; i < reads; i++)
        CHECK(lengths[i] == CHUNK_BYTES);
    board_free(board);
}

static void slow_reads_become_small_again(void)
{
    copy(MONARCH_DEMAND, 4);
    CHECK(lengths[3] == LARGEST && lengths[4] == CHUNK_BYTES);
    CHECK(lengths[reads - 1] == LARGEST);
    board_free(board);
}

static void each_read_shows(void)
{
    copy(MONARCH_DEMAND, 0);
    CHECK(come[0] == PROGRESS_BEGUN);
    for (int i = 1; i < reads; i++)
        CHECK(come[i] > come[i - 1]);
    CHECK(progress_load(board->requests, 0) == progress_of(SIZE));
    CHECK(progress_load(board->requests, WAITER_COUNTS) == 0); /* the same word */
    board_free(board);
}

/* ---- programs that wait for a large File ----------------------------------------- */

static struct table *table;

/* begin_table - a table in which programs only wait for awaited Files, and an engine
 * that may copy nothing in the background. */
static void begin_table(void)
{
    board = board_new_equal(FILES, SIZE / 4);
    table = board_table(board, 1, 1000, 1ull << 30);
    board_start(board, 2, 1);
    monarch_engine_set_background(board->engine, 0, 0);
}

static void end_table(void)
{
    board_free(board);
    monarch_table_free(table);
}

static bool is_ready(uint32_t file)
{
    return STATE_OF(replica_load(board->catalog, file)) == REPLICA_READY;
}

static void wait_ready(uint32_t file)
{
    while (!is_ready(file))
        poll(NULL, 0, 1);
}

static void set_waiters(uint32_t file, uint32_t n)
{
    atomic_store((_Atomic uint32_t *)&board->requests->waiters[file], n);
}

static void a_large_file_that_is_waited_for_is_demand(void)
{
    begin_table();
    board_ask(board, 0, 1 + 1); /* no program waits for this one */
    set_waiters(2, 1);
    board_ask(board, 1, 2 + 1);
    wait_ready(2);
    poll(NULL, 0, 50);
    CHECK(STATE_OF(replica_load(board->catalog, 1)) == REPLICA_STAGING);
    CHECK(!is_ready(1));
    set_waiters(1, 1); /* not started yet: it continues as demand when fill may run */
    monarch_engine_set_background(board->engine, 1, 1);
    wait_ready(1);
    end_table();
}

/* set_whole - programs wait for this whole File, as the agent knows. */
static void set_whole(uint32_t file, uint64_t wait_max_whole_bytes)
{
    uint8_t *flags = (uint8_t *)board->flags;
    board->flags->whole = board->flags->opened; /* unused here */
    flags[board->flags->whole + file] = WHOLE_NAMED;
    board->catalog->cold_wait_max_whole_bytes = wait_max_whole_bytes;
}

static void what_a_peer_asks_for_is_demand_if_programs_wait_for_it_whole(void)
{
    begin_table();
    set_whole(1, SIZE / 4);
    set_whole(2, SIZE / 4);
    monarch_engine_demand(board->engine, 0, MONARCH_ASKED);
    monarch_engine_demand(board->engine, 1, MONARCH_ASKED);
    wait_ready(1);
    board->catalog->cold_wait_max_whole_bytes = SIZE / 4 - 1;
    monarch_engine_demand(board->engine, 2, MONARCH_ASKED);
    poll(NULL, 0, 50);
    CHECK(!is_ready(0) && !is_ready(2));
    end_table();
}

/* ---- reads of another node ------------------------------------------------------- */

static struct pair pair;

static void await_progress(uint32_t file, uint32_t expected)
{
    while (progress_load(pair.asker->requests, file) != expected)
        poll(NULL, 0, 5);
}

static void the_progress_of_the_owner_reaches_who_waits_there(void)
{
    const uint64_t sizes[FILES] = {1000, EXTENT_BYTES + 1, EXTENT_BYTES + 1};
    pair.serves = (struct monarch_server_options){
        .peers = PEERS, .connections = 8, .park_ms = 60000, .stall_ms = 60000};
    pair.receives = (struct monarch_receiver_options){.peers = PEERS,
                                                      .in_flight = 4,
                                                      .timeout_ms = 60000,
                                                      .react_ms = 60000,
                                                      .threads = 1};
    pair_new(&pair, FILES, sizes);
    pair_connect(&pair, ends_local());
    pair_submit(&pair, 1);
    pair_submit(&pair, 2);
    for (uint32_t now = 3; now < 6; now++) { /* of all Files, not of the oldest alone */
        progress_store(pair.owner->requests, 1, now);
        progress_store(pair.owner->requests, 2, 10 * now);
        await_progress(1, now);
        await_progress(2, 10 * now);
    }
    make_ready(pair.owner, 1);
    make_ready(pair.owner, 2);
    CHECK(pair_wait(&pair).status == 0 && pair_wait(&pair).status == 0);
    for (uint32_t file = 1; file < FILES; file++)
        CHECK(progress_load(pair.asker->requests, file) == progress_of(sizes[file]));
    pair_free(&pair);
}

int main(void)
{
    demand_reads_are_large_and_aligned();
    fill_reads_are_small();
    slow_reads_become_small_again();
    each_read_shows();
    a_large_file_that_is_waited_for_is_demand();
    what_a_peer_asks_for_is_demand_if_programs_wait_for_it_whole();
    the_progress_of_the_owner_reaches_who_waits_there();
    return PASS;
}
