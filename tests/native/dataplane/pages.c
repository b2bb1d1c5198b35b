/* pages.c - Pages of large Files: what a request costs the origin, and Blocks that come in parts. */
#include "ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"
#include "shared/catalog.h"

enum { FILES = 1, PATIENCE_S = 60, ROOM = 200 << 20 };

static const uint64_t SIZE = 3ull * EXTENT_BYTES + 300000;

static struct board *board;
static struct table *table;

static void begin(void)
{
    board = board_new_equal(FILES, SIZE);
    table = board_table(board, 4, EXTENT_BYTES, ROOM);
    board_start(board, 3, 2);
}

/* end - no file of what was not published is left. */
static void end(void)
{
    bool ready[FILES];
    for (uint32_t i = 0; i < FILES; i++)
        ready[i] = STATE_OF(board_state(board, i)) == REPLICA_READY;
    board_stop(board);
    for (uint32_t i = 0; i < FILES; i++) {
        char path[512];
        board_replica_path(board, i, path);
        CHECK((access(path, F_OK) == 0) == ready[i]);
        unlink(path);
    }
    board_free(board);
    monarch_table_free(table);
}

static bool is_ready(uint32_t file)
{
    return STATE_OF(board_state(board, file)) == REPLICA_READY;
}

static void until(bool (*done)(uint32_t file), uint32_t file)
{
    uint64_t limit = clock_ns() + PATIENCE_S * SECOND_NS;
    while (!done(file)) {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, 1);
    }
}

/* until_idle - nothing is copied any more. */
static struct monarch_tally until_idle(void)
{
    struct monarch_tally t;
    uint64_t limit = clock_ns() + PATIENCE_S * SECOND_NS;
    do {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, 1);
        monarch_table_tally(table, &t);
    } while (t.in_flight);
    return t;
}

/* failed - the next Transfer that ends has failed in this way. */
static struct monarch_completion failed(int status)
{
    struct monarch_completion done = board_wait(board);
    CHECK(done.status == status);
    return done;
}

static void fail(const struct monarch_completion *done)
{
    const struct monarch_order order = {.file = done->file,
                                        .tier = done->tier,
                                        .kind = done->kind,
                                        .peer = done->peer,
                                        .word = done->word};
    CHECK(monarch_table_fail(table, &order, REASON_CHANGED, 0) == 1);
}

static void room_is_given_back(void)
{
    struct monarch_account room;
    monarch_table_account(table, 0, &room);
    CHECK(room.used == 0 && room.reserved == 0);
    CHECK(part_load(presence_part(board->flags, 0)) == 0 &&
          range_present(board, 0) == 0);
}

/* pages - some Pages of the first File. */
static struct page_range pages(uint32_t first, uint32_t count)
{
    return (struct page_range){0, first, count};
}

static void a_page_costs_the_origin_a_page(void)
{
    const uint32_t last = pages_of(SIZE) - 1;
    begin();
    range_read(board, 0, pages(77, 1));
    range_read(board, 0, pages(BLOCK_PAGES - 1, 2));  /* of two Blocks */
    range_read(board, 0, pages(EXTENT_PAGES - 1, 2)); /* of two Extents */
    range_read(board, 0, pages(last, 1));
    CHECK(range_present(board, 0) == 6);
    poll(NULL, 0, 50); /* for the counts of the last Transfers */
    CHECK(until_idle().origin_read_bytes == 5 * PAGE_BYTES + SIZE % PAGE_BYTES);
    CHECK(until_idle().staged_bytes == 5 * PAGE_BYTES + SIZE % PAGE_BYTES);
    end();
}

static void pages_in_no_order_make_a_replica(void)
{
    enum { STEP = 4099 }; /* prime: each Page comes once */
    begin();
    for (uint32_t i = 0, at = 0; i < pages_of(SIZE); i++) {
        at = (at + STEP) % pages_of(SIZE);
        range_read(board, 0, pages(at, 1));
    }
    until(is_ready, 0);
    CHECK(board_replica_right(board, 0));
    poll(NULL, 0, 50);
    CHECK(until_idle().origin_read_bytes == SIZE);
    end();
}

static bool first_extent_is_present(uint32_t file)
{
    return pages_there(presence_words(board->flags, file), 0, EXTENT_PAGES);
}

/* The reader has paid for four fifths of the Extent, one by one. */
static void an_extent_that_is_mostly_read_is_read_to_its_end(void)
{
    begin();
    range_read(board, 0, pages(0, EXTENT_PAGES / 5 * 4 - 1));
    poll(NULL, 0, 50);
    CHECK(range_present(board, 0) == EXTENT_PAGES / 5 * 4 - 1);
    range_read(board, 0, pages(EXTENT_PAGES - 4, 4));
    until(first_extent_is_present, 0);
    CHECK(range_present(board, 0) == EXTENT_PAGES);
    end();
}

/* spoil_page - changes a byte of a Page in the Tier. */
static void spoil_page(uint32_t page)
{
    char path[512], byte;
    const off_t at = (off_t)page * PAGE_BYTES + 77;
    board_replica_path(board, 0, path);
    CHECK(chmod(path, 0600) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void a_block_that_came_in_parts_must_be_what_had_come(void)
{
    begin();
    range_read(board, 0, pages(0, BLOCK_PAGES / 2));
    spoil_page(3);
    range_ask(board, 0, pages(BLOCK_PAGES / 2, BLOCK_PAGES / 2));
    struct monarch_completion done = failed(-EBADMSG);
    fail(&done);
    room_is_given_back();
    end();
}

int main(void)
{
    a_page_costs_the_origin_a_page();
    pages_in_no_order_make_a_replica();
    an_extent_that_is_mostly_read_is_read_to_its_end();
    a_block_that_came_in_parts_must_be_what_had_come();
    return PASS;
}
