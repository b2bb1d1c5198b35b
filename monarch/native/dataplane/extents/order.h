/* order.h - the class of an order, and the Pages and Blocks that it covers. */
#ifndef MONARCH_ORDER_H
#define MONARCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/extents/order_api.h"
#include "shared/layout.h"

enum order_class { CLASS_DEMAND, CLASS_BACKGROUND, CLASS_COUNT };

static inline enum order_class order_class(uint8_t kind)
{
    return kind & 1 ? CLASS_BACKGROUND : CLASS_DEMAND;
}

struct page_run { /* Pages of one Extent */
    uint32_t first, count;
};

struct block_run { /* Blocks of one Extent: peers exchange these, with checksums */
    uint32_t first, count;
};

struct page_want { /* Pages of one File that programs wait for */
    uint32_t file, first, count;
};

/* order_has_pages - an order covers some of these Pages. */
static inline bool order_has_pages(const struct monarch_order *order,
                                   const struct page_want *wanted)
{
    return order->file == wanted->file &&
           order->first_page < wanted->first + wanted->count &&
           wanted->first < order->first_page + order->page_count;
}

/* order_extent - returns the Extent of an order for Pages. */
static inline uint32_t order_extent(const struct monarch_order *order)
{
    return order->first_page / EXTENT_PAGES;
}

#endif
