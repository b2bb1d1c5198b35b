/* ranges.h - a board of large Files, and their Pages as a program requests and reads them. */
#ifndef TEST_RANGES_H
#define TEST_RANGES_H

#include "board.h"
#include "shared/presence.h"

/* range_ask() fills a slot, or several for a long range; range_read() returns when all
 * Pages are present, and right. */
void range_ask(struct board *b, uint32_t slot, struct page_range range);
void range_read(struct board *b, uint32_t slot, struct page_range range);
uint32_t range_present(const struct board *b, uint32_t large);

#define LARGE_SIZE (3ull * EXTENT_BYTES + 300000)

enum { LARGE_FILES_MAX = 8 };

extern struct large { /* the board of one test */
    struct board *board;
    struct table *table;
} big;

/* large_end() checks that no unpublished file is left. */
void large_begin(uint32_t files);
void large_end(void);
bool large_is_ready(uint32_t file);
void large_until(bool (*done)(uint32_t file), uint32_t file);
struct monarch_tally large_until_idle(void); /* no copy is running any more */

/* The next Transfer to end has failed with this status; Python makes its File absent;
 * the Tier has all its space again, and nothing of the first File is left. */
struct monarch_completion large_failed(int status);
void large_fail(const struct monarch_completion *done);
void large_room_is_given_back(void);

#endif
