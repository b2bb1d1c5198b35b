/* pages.c - Pages of large Files: the cost of requests, and partial Blocks. */
#include "ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"
#include "shared/catalog.h"

/* pages - some Pages of the first File. */
static struct page_range pages(uint32_t first, uint32_t count)
{
    return (struct page_range){0, first, count};
}

static void a_page_costs_the_origin_a_page(void)
{
    const uint32_t last = pages_of(LARGE_SIZE) - 1;
    large_begin(1);
    range_read(big.board, 0, pages(77, 1));
    range_read(big.board, 0, pages(BLOCK_PAGES - 1, 2));  /* of two Blocks */
    range_read(big.board, 0, pages(EXTENT_PAGES - 1, 2)); /* of two Extents */
    range_read(big.board, 0, pages(last, 1));
    CHECK(range_present(big.board, 0) == 6);
    poll(NULL, 0, 50); /* for the counts of the last Transfers */
    CHECK(large_until_idle().origin_read_bytes ==
          5 * PAGE_BYTES + LARGE_SIZE % PAGE_BYTES);
    CHECK(large_until_idle().staged_bytes == 5 * PAGE_BYTES + LARGE_SIZE % PAGE_BYTES);
    large_end();
}

static void pages_in_no_order_make_a_replica(void)
{
    enum { STEP = 4099 }; /* prime: each Page occurs once */
    large_begin(1);
    for (uint32_t i = 0, at = 0; i < pages_of(LARGE_SIZE); i++) {
        at = (at + STEP) % pages_of(LARGE_SIZE);
        range_read(big.board, 0, pages(at, 1));
    }
    large_until(large_is_ready, 0);
    CHECK(board_replica_right(big.board, 0));
    poll(NULL, 0, 50);
    CHECK(large_until_idle().origin_read_bytes == LARGE_SIZE);
    large_end();
}

static bool first_extent_is_present(uint32_t file)
{
    return pages_there(presence_words(big.board->flags, file), 0, EXTENT_PAGES);
}

/* The reader has requested four fifths of the Extent, one by one. */
static void an_extent_that_is_mostly_read_is_read_to_its_end(void)
{
    large_begin(1);
    range_read(big.board, 0, pages(0, EXTENT_PAGES / 5 * 4 - 1));
    poll(NULL, 0, 50);
    CHECK(range_present(big.board, 0) == EXTENT_PAGES / 5 * 4 - 1);
    range_read(big.board, 0, pages(EXTENT_PAGES - 4, 4));
    large_until(first_extent_is_present, 0);
    CHECK(range_present(big.board, 0) == EXTENT_PAGES);
    large_end();
}

/* spoil_page - changes a byte of a Page in the Tier. */
static void spoil_page(uint32_t page)
{
    char path[512], byte;
    const off_t at = (off_t)page * PAGE_BYTES + 77;
    board_replica_path(big.board, 0, path);
    CHECK(chmod(path, 0600) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void a_block_that_came_in_parts_must_be_what_had_come(void)
{
    large_begin(1);
    range_read(big.board, 0, pages(0, BLOCK_PAGES / 2));
    spoil_page(3);
    range_ask(big.board, 0, pages(BLOCK_PAGES / 2, BLOCK_PAGES / 2));
    struct monarch_completion done = large_failed(-EBADMSG);
    large_fail(&done);
    large_room_is_given_back();
    large_end();
}

int main(void)
{
    a_page_costs_the_origin_a_page();
    pages_in_no_order_make_a_replica();
    an_extent_that_is_mostly_read_is_read_to_its_end();
    a_block_that_came_in_parts_must_be_what_had_come();
    return PASS;
}
