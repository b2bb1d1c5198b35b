/* blocks.c - large Files read by Block: a Block with its bit set is right, the whole
 * File becomes READY in the end, and a File that cannot be staged leaves nothing. */
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"
#include "fault.h"
#include "ranges.h"
#include "shared/catalog.h"
#include "shared/presence.h"

enum {
    FILES = 3,
    PROGRAMS = 4,
    ASKED = 60, /* ranges of each program */
    FDS_MAX = 256,
};

static uint32_t to_read[FILES] = {0, 1, 2};

static void fill(void)
{
    const struct monarch_fill list = {.to_read = to_read, .read_count = FILES};
    monarch_engine_fill(big.board->engine, &list);
}

/* blocks - the Pages of some Blocks. */
static struct page_range blocks(uint32_t large, uint32_t first, uint32_t count)
{
    uint32_t page = first * BLOCK_PAGES, left = pages_of(LARGE_SIZE) - page;
    uint32_t pages = count * BLOCK_PAGES;
    return (struct page_range){large, page, pages < left ? pages : left};
}

static bool is_present(uint32_t file, uint32_t block)
{
    struct page_range all = blocks(file, block, 1);
    return pages_there(presence_words(big.board->flags, file), all.first, all.count);
}

/* present - the number of Blocks present, each of them whole. */
static uint32_t present(uint32_t file)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < blocks_of(LARGE_SIZE); i++)
        sum += is_present(file, i);
    return sum;
}

static void ask(uint32_t slot, struct page_range range)
{
    range_ask(big.board, slot, range);
}

static void read_range(uint32_t slot, struct page_range range)
{
    range_read(big.board, slot, range);
}

static void what_is_asked_for_comes_alone(void)
{
    large_begin(FILES);
    read_range(0, blocks(0, 5, 2));
    read_range(0, blocks(0, 31, 2)); /* of two Extents */
    CHECK(present(0) == 4 && present(1) == 0);
    CHECK(STATE_OF(board_state(big.board, 0)) == REPLICA_STAGING);
    uint64_t seen = part_load(presence_part(big.board->flags, 0));
    CHECK((uint32_t)seen == part_tag(replica_load(big.board->catalog, 0)));
    large_end();
}

/* Not even pages that the kernel has read ahead. */
static void blocks_leave_no_pages_at_the_origin(void)
{
    large_begin(FILES);
    if (board_forget_pages(big.board, 0)) {
        read_range(0, blocks(0, 5, 2));
        fill();
        large_until(large_is_ready, 0);
        CHECK(board_cached_pages(big.board, 0) == 0);
    }
    large_end();
}

static void the_last_block_makes_it_ready(void)
{
    large_begin(FILES);
    for (uint32_t at = blocks_of(LARGE_SIZE); at-- > 0;)
        read_range(0, blocks(1, at, 1));
    large_until(large_is_ready, 1);
    CHECK(board_replica_right(big.board, 1));
    large_end();
}

static void requests_beyond_the_end_hurt_nobody(void)
{
    large_begin(FILES);
    ask(0, (struct page_range){FILES + 7, 0, 1});
    ask(1, (struct page_range){0, pages_of(LARGE_SIZE) + 40, 9});
    ask(2, (struct page_range){0, 0, 0});
    read_range(3, blocks(0, 0, 1));
    CHECK(present(0) == 1);
    large_end();
}

static void *program(void *number)
{
    uint32_t slot = (uint32_t)(uintptr_t)number, random = slot * 2654435761u + 1;
    for (int i = 0; i < ASKED; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t at = (random >> 8) % pages_of(LARGE_SIZE),
                 left = pages_of(LARGE_SIZE) - at;
        uint32_t n = 1 + (random >> 24) % (random & 1 ? 9 : 600);
        read_range(slot, (struct page_range){random >> 4 & 1, at, n < left ? n : left});
    }
    return NULL;
}

static void run_programs(void)
{
    pthread_t threads[PROGRAMS];
    for (uintptr_t i = 0; i < PROGRAMS; i++)
        pthread_create(&threads[i], NULL, program, (void *)i);
    for (int i = 0; i < PROGRAMS; i++)
        pthread_join(threads[i], NULL);
}

static void each_block_is_copied_once(void)
{
    large_begin(FILES);
    run_programs();
    poll(NULL, 0, 50); /* for the counts of the last Transfers */
    CHECK(large_until_idle().origin_read_bytes <= 2 * LARGE_SIZE);
    large_end();
}

static void programs_and_fill_share_the_work(void)
{
    large_begin(FILES);
    read_range(0, blocks(0, 40, 3));
    fill();
    run_programs();
    for (uint32_t i = 0; i < FILES; i++) {
        large_until(large_is_ready, i);
        CHECK(board_replica_right(big.board, i));
    }
    poll(NULL, 0, 50);
    struct monarch_tally t = large_until_idle();
    CHECK(t.staged_files == FILES && t.staged_bytes == FILES * LARGE_SIZE);
    /* Where requests are slow, fill also reads Pages that are present. */
    CHECK(t.origin_read_bytes >= FILES * LARGE_SIZE);
    CHECK(t.origin_read_bytes <= FILES * LARGE_SIZE / 4 * 5);
    large_end();
}

static bool two_are_present(uint32_t file)
{
    return present(file) == 2;
}

/* Requested once: a request that a thread has taken but not processed would stage the
 * File again. */
static void a_file_that_has_changed_is_staged_no_more(void)
{
    char path[512];
    large_begin(FILES);
    ask(0, blocks(0, 5, 2));
    large_until(two_are_present, 0);
    board_origin_path(big.board, 0, path);
    CHECK(truncate(path, (off_t)LARGE_SIZE + 1) == 0);
    ask(0, blocks(0, 50, 1));
    struct monarch_completion done = large_failed(-ESTALE);
    CHECK(done.file == 0);
    large_fail(&done);
    large_room_is_given_back();
    large_end();
}

/* open_files - the number of the origin's files that this process has open. */
static uint32_t open_files(const char *path)
{
    uint32_t found = 0;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        char link[64], to[512];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, to, sizeof(to) - 1);
        to[n > 0 ? n : 0] = 0;
        found += strcmp(to, path) == 0;
    }
    return found;
}

static void a_file_that_has_changed_before_leaves_no_descriptor(void)
{
    char path[512];
    large_begin(FILES);
    board_origin_path(big.board, 0, path);
    CHECK(truncate(path, (off_t)LARGE_SIZE + 1) == 0);
    ask(0, blocks(0, 50, 1));
    struct monarch_completion done = large_failed(-ESTALE);
    large_fail(&done);
    large_room_is_given_back();
    CHECK(open_files(path) == 0);
    large_end();
}

static void a_file_that_is_written_to_is_staged_no_more(void)
{
    large_begin(FILES);
    read_range(0, blocks(0, 5, 2));
    atomic_store((_Atomic uint8_t *)&big.board->flags->written[0], MARKED_ALL);
    struct monarch_completion done = large_failed(-ESTALE); /* without a request */
    large_fail(&done);
    large_room_is_given_back();
    large_end();
}

static bool is_hidden(uint32_t file)
{
    return part_load(presence_part(big.board->flags, file)) == 0;
}

static void what_python_gives_up_is_removed(void)
{
    large_begin(FILES);
    read_range(0, blocks(0, 5, 2));
    const struct monarch_order order = {.file = 0,
                                        .kind = MONARCH_PARTLY,
                                        .peer = NO_PEER,
                                        .word = replica_load(big.board->catalog, 0)};
    CHECK(monarch_table_fail(big.table, &order, REASON_NONE, 1) == 1);
    large_until(is_hidden, 0);
    large_room_is_given_back();
    read_range(0, blocks(0, 70, 1)); /* and it can start again */
    CHECK(present(0) == 1);
    large_end();
}

static void memory_that_is_needed_is_given_back(void)
{
    large_begin(FILES);
    read_range(0, blocks(0, 5, 2));
    read_range(0, blocks(1, 40, 3));
    CHECK(monarch_engine_drop_partial(big.board->engine, 1, 1, REASON_MEMORY) == 0);
    CHECK(monarch_engine_drop_partial(big.board->engine, 0, 1, REASON_MEMORY) ==
          2 * BLOCK_BYTES);
    CHECK(STATE_REASON(board_state(big.board, 0)) == REASON_MEMORY && is_hidden(0));
    CHECK(present(1) == 3); /* that was enough */
    CHECK(monarch_engine_drop_partial(big.board->engine, 0, 1, REASON_MEMORY) ==
          3 * BLOCK_BYTES);
    large_room_is_given_back();
    large_end();
}

static atomic_bool hanging;

/* hang - the origin does not return one Block while it hangs. */
static ssize_t hang(int fd, void *buffer, size_t n, off_t at)
{
    while (at == 5 * (off_t)BLOCK_BYTES && atomic_load(&hanging))
        poll(NULL, 0, 5);
    return __real_pread(fd, buffer, n, at);
}

static bool is_stalled(uint32_t root)
{
    struct monarch_health health;
    monarch_engine_health(big.board->engine, &health);
    return health.stalled >> root & 1;
}

/* is_begun - a request for the whole File now counts: programs repeat it until then. */
static bool is_begun(uint32_t file)
{
    return part_load(presence_part(big.board->flags, file)) != 0;
}

static bool lacks_one(uint32_t file)
{
    return present(file) == blocks_of(LARGE_SIZE) - 1;
}

static void who_waits_for_a_block_that_hangs_hides_no_stall(void)
{
    large_begin(FILES);
    atomic_store(&hanging, true);
    fault_pread = hang;
    ask(0, blocks(0, 5, 1));
    large_until(is_begun, 0);
    board_ask(big.board, 1, 1); /* all of it: the rest comes, this Transfer waits */
    large_until(is_stalled, 0);
    large_until(lacks_one, 0);
    atomic_store(&hanging, false);
    large_until(large_is_ready, 0);
    CHECK(board_replica_right(big.board, 0));
    fault_pread = NULL;
    large_end();
}

static uint8_t place_of(uint32_t file, uint32_t extent)
{
    return atomic_load(&presence_places(big.board->flags, file)[extent]);
}

static bool is_elsewhere(uint32_t file)
{
    return place_of(file, 1) == PLACE_ORIGIN;
}

static void a_file_larger_than_its_tier_is_held_in_part(void)
{
    struct monarch_account room;
    large_begin(FILES);
    monarch_table_set_capacity(big.table, 0, EXTENT_BYTES);
    read_range(0, blocks(0, 5, 2));
    CHECK(part_pieces(presence_part(big.board->flags, 0)) && place_of(0, 0) == 0);
    monarch_table_account(big.table, 0, &room);
    CHECK(room.used == EXTENT_BYTES && !room.reserved);
    ask(0, blocks(0, 50, 1));
    large_until(is_elsewhere, 0);
    CHECK(!is_present(0, 50));
    for (uint32_t at = 0; at < EXTENT_BLOCKS; at++)
        read_range(0, blocks(0, at, 1));
    CHECK(present(0) == EXTENT_BLOCKS && !large_is_ready(0));
    CHECK(monarch_engine_drop_partial(big.board->engine, 0, 1, REASON_NONE) ==
          EXTENT_BYTES);
    large_room_is_given_back();
    large_end();
}

static void a_file_that_has_come_under_the_name_stays(void)
{
    char path[512], other[512];
    large_begin(FILES);
    read_range(0, blocks(0, 5, 2));
    board_replica_path(big.board, 0, path);
    snprintf(other, sizeof(other), "%s/other", big.board->tier);
    int fd = open(other, O_CREAT | O_WRONLY, 0400);
    CHECK(fd >= 0 && close(fd) == 0 && rename(other, path) == 0);
    CHECK(monarch_engine_drop_partial(big.board->engine, 0, 1, REASON_NONE) > 0);
    CHECK(access(path, F_OK) == 0 && unlink(path) == 0);
    large_end();
}

int main(void)
{
    who_waits_for_a_block_that_hangs_hides_no_stall();
    a_file_larger_than_its_tier_is_held_in_part();
    a_file_that_has_come_under_the_name_stays();
    memory_that_is_needed_is_given_back();
    what_is_asked_for_comes_alone();
    blocks_leave_no_pages_at_the_origin();
    the_last_block_makes_it_ready();
    requests_beyond_the_end_hurt_nobody();
    each_block_is_copied_once();
    programs_and_fill_share_the_work();
    a_file_that_has_changed_is_staged_no_more();
    a_file_that_has_changed_before_leaves_no_descriptor();
    a_file_that_is_written_to_is_staged_no_more();
    what_python_gives_up_is_removed();
    return PASS;
}
