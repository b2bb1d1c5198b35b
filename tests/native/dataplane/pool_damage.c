/* pool_damage.c - an Extent in the Pool is found damaged while another Transfer writes to its file. */
#include "ranges.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "fault.h"
#include "shared/catalog.h"

enum {
    SLOW_PAGE = 3 * BLOCK_PAGES,
    LAST = BLOCK_PAGES - 1, /* of the first Block: its checksum is then computed */
    DAMAGED = 5,
};
enum { FREE, HOLDS, HELD };

static atomic_int slow; /* the read of one Page */
static char pool[300];

static ssize_t held_pread(int fd, void *buffer, size_t n, off_t at)
{
    ssize_t got = __real_pread(fd, buffer, n, at);
    int holds = HOLDS;
    if (at == (off_t)SLOW_PAGE * PAGE_BYTES &&
        atomic_compare_exchange_strong(&slow, &holds, HELD))
        while (atomic_load(&slow) == HELD)
            poll(NULL, 0, 1);
    return got;
}

/* pool_path - the file of the first Extent. */
static void pool_path(char out[600])
{
    char path[512];
    board_replica_path(big.board, 0, path);
    snprintf(out, 600, "%s%s", pool, strrchr(path, '/'));
    presence_extent_name(0, out + strlen(out) - REPLICA_NAME_BYTES);
}

static void follow(void)
{
    struct monarch_table_row rows[4];
    for (int i = 0; i < 4; i++)
        rows[i] = (struct monarch_table_row){
            .destination = DESTINATION_TIER,
            .sources = {NO_SOURCE, NO_SOURCE, NO_SOURCE}};
    const struct monarch_plan plan = {.rows = rows, .uses_pool = 1};
    CHECK(monarch_table_follow(big.table, &plan) == 0);
}

/* begin - a Tier without space, so that Extents are in the Pool. */
static void begin(void)
{
    big.board = board_new_equal(1, LARGE_SIZE);
    struct catalog *cat = big.board->catalog;
    snprintf(pool, sizeof(pool), "%s/pool", big.board->base);
    memcpy(cat->tiers[1].path, pool, strlen(pool) + 1);
    CHECK(mkdir(pool, 0700) == 0);
    cat->tiers[1].dev = cat->tiers[0].dev;
    cat->tier_count = 2;
    big.table = board_table(big.board, 4, EXTENT_BYTES, PAGE_BYTES);
    follow();
    monarch_table_set_capacity(big.table, 1, 64 << 20);
    board_start(big.board, 4, 2);
}

static bool are_there(uint32_t first, uint32_t count)
{
    return pages_there(presence_words(big.board->flags, 0), first, count);
}

static void want(uint32_t first, uint32_t count)
{
    for (int i = 0; i < 15000 && !are_there(first, count); i++) {
        if (i % 50 == 0)
            range_ask(big.board, 0, (struct page_range){0, first, count});
        poll(NULL, 0, 2);
    }
    CHECK(are_there(first, count));
}

static void damage(const char *path)
{
    uint8_t byte;
    const off_t at = DAMAGED * PAGE_BYTES + 7;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void expect_right(const char *path, uint32_t page)
{
    uint8_t bytes[PAGE_BYTES];
    const off_t at = (off_t)page * PAGE_BYTES;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && __real_pread(fd, bytes, sizeof(bytes), at) == sizeof(bytes));
    CHECK(bytes_right(0, (uint64_t)at, bytes, sizeof(bytes)));
    close(fd);
}

/* The slow Transfer wrote to a file that is gone: no program may search there. */
static void what_is_written_to_a_removed_file_is_not_there(void)
{
    char path[600];
    begin();
    want(0, LAST);
    pool_path(path);
    damage(path);
    atomic_store(&slow, HOLDS);
    fault_pread = held_pread;
    range_ask(big.board, 8, (struct page_range){0, SLOW_PAGE, 1});
    while (atomic_load(&slow) != HELD)
        poll(NULL, 0, 1);
    range_ask(big.board, 16, (struct page_range){0, LAST, 1});
    while (are_there(DAMAGED, 1))
        poll(NULL, 0, 1);
    atomic_store(&slow, FREE);
    want(SLOW_PAGE, 1);
    want(5 * BLOCK_PAGES, 1);
    expect_right(path, SLOW_PAGE);
    want(0, BLOCK_PAGES);
    expect_right(path, DAMAGED);
    fault_pread = NULL;
    large_end();
}

int main(void)
{
    what_is_written_to_a_removed_file_is_not_there();
    return PASS;
}
