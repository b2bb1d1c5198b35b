/* ranges.h - Pages of large Files, as a program requests and reads them. */
#ifndef TEST_RANGES_H
#define TEST_RANGES_H

#include "board.h"
#include "shared/presence.h"

/* range_ask() fills a slot, or several for a long range; range_read() returns when all Pages
 * are present, and right. */
void range_ask(struct board *b, uint32_t slot, struct page_range range);
void range_read(struct board *b, uint32_t slot, struct page_range range);
uint32_t range_present(const struct board *b, uint32_t large);

#endif
