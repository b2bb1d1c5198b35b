/* ranges.c - Pages of large Files, as a program requests and reads them. */
#include "ranges.h"

#include <poll.h>

#include "dataplane/base/clock.h"
#include "shared/catalog.h"

enum { STEP = 16, ASK_AGAIN = 50, LIMIT_S = 60 };

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

/* range_present - how many Pages of a File are present. */
uint32_t range_present(const struct board *b, uint32_t large)
{
    uint32_t sum = 0, file = presence_file(b->flags, large);
    const _Atomic uint64_t *words = presence_words(b->flags, large);
    for (uint32_t i = 0; i < blocks_of(b->sizes[file]); i++)
        sum += (uint32_t)__builtin_popcountll(atomic_load(&words[i]));
    return sum;
}
