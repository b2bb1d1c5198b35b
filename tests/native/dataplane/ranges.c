/* ranges.c - a board of large Files, and their Pages as a program requests and reads them. */
#include "ranges.h"

#include <poll.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "shared/catalog.h"

enum { STEP = 16, ASK_AGAIN = 50, LIMIT_S = 60, ROOM = 200 << 20 };

void range_ask(struct board *b, uint32_t slot, struct page_range range)
{
    do {
        board_ask(b, slot, presence_request(range));
        uint32_t asked = range.count < REQUEST_COUNT_MAX ? range.count
                                                         : REQUEST_COUNT_MAX;
        range.first += asked;
        range.count -= asked;
        slot += STEP;
    } while (range.count);
}

static bool is_here(const struct board *b, uint32_t large, uint32_t page)
{
    uint32_t file = presence_file(b->flags, large);
    return STATE_OF(board_state(b, file)) == REPLICA_READY ||
           pages_there(presence_words(b->flags, large), page, 1);
}

void range_read(struct board *b, uint32_t slot, struct page_range range)
{
    uint32_t file = presence_file(b->flags, range.large);
    uint64_t limit = clock_ns() + LIMIT_S * SECOND_NS;
    for (uint32_t at = range.first; at < range.first + range.count; at++) {
        for (int turn = 0; !is_here(b, range.large, at); turn++) {
            if (turn % ASK_AGAIN == 0)
                range_ask(b, slot, range);
            CHECK(clock_ns() < limit);
            poll(NULL, 0, 1);
        }
        CHECK(board_page_right(b, file, at));
    }
}

/* range_present - the number of Pages of a File that are present. */
uint32_t range_present(const struct board *b, uint32_t large)
{
    uint32_t sum = 0, file = presence_file(b->flags, large);
    const _Atomic uint64_t *words = presence_words(b->flags, large);
    for (uint32_t i = 0; i < blocks_of(b->sizes[file]); i++)
        sum += (uint32_t)__builtin_popcountll(atomic_load(&words[i]));
    return sum;
}

/* ---- a board of them ------------------------------------------------------------------- */

struct large big;

void large_begin(uint32_t files)
{
    big.board = board_new_equal(files, LARGE_SIZE);
    big.table = board_table(big.board, 4, EXTENT_BYTES, ROOM);
    board_start(big.board, 3, 2);
}

void large_end(void)
{
    uint32_t files = big.board->files;
    bool ready[LARGE_FILES_MAX];
    CHECK(files <= LARGE_FILES_MAX);
    for (uint32_t i = 0; i < files; i++)
        ready[i] = large_is_ready(i);
    board_stop(big.board);
    for (uint32_t i = 0; i < files; i++) {
        char path[512];
        board_replica_path(big.board, i, path);
        CHECK((access(path, F_OK) == 0) == ready[i]);
        unlink(path);
    }
    board_free(big.board);
    monarch_table_free(big.table);
}

bool large_is_ready(uint32_t file)
{
    return STATE_OF(board_state(big.board, file)) == REPLICA_READY;
}

void large_until(bool (*done)(uint32_t file), uint32_t file)
{
    uint64_t limit = clock_ns() + LIMIT_S * SECOND_NS;
    while (!done(file)) {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, 1);
    }
}

struct monarch_tally large_until_idle(void)
{
    struct monarch_tally t;
    uint64_t limit = clock_ns() + LIMIT_S * SECOND_NS;
    do {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, 1);
        monarch_table_tally(big.table, &t);
    } while (t.in_flight);
    return t;
}

struct monarch_completion large_failed(int status)
{
    struct monarch_completion done = board_wait(big.board);
    CHECK(done.status == status);
    return done;
}

void large_fail(const struct monarch_completion *done)
{
    const struct monarch_order order = {.file = done->file,
                                        .tier = done->tier,
                                        .kind = done->kind,
                                        .peer = done->peer,
                                        .word = done->word};
    CHECK(monarch_table_fail(big.table, &order, REASON_CHANGED, 0) == 1);
}

void large_room_is_given_back(void)
{
    struct monarch_account room;
    monarch_table_account(big.table, 0, &room);
    CHECK(room.used == 0 && room.reserved == 0);
    CHECK(part_load(presence_part(big.board->flags, 0)) == 0);
    CHECK(range_present(big.board, 0) == 0);
}
