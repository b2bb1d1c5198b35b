/* order.h - what one Transfer is to do. */
#ifndef MONARCH_ORDER_H
#define MONARCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/extents/order_api.h"

enum order_class { CLASS_DEMAND, CLASS_BACKGROUND, CLASS_COUNT };

static inline enum order_class order_class(uint8_t kind)
{
    return kind & 1 ? CLASS_BACKGROUND : CLASS_DEMAND;
}

struct block_run { /* of Blocks, within one Extent */
    uint32_t first, count;
};

struct block_want { /* Blocks of one File that programs wait for */
    uint32_t file, first, count;
};

/* order_has_blocks - an order is for some of these Blocks. */
static inline bool order_has_blocks(const struct monarch_order *order,
                                    const struct block_want *wanted)
{
    return order->file == wanted->file &&
           order->first_block < wanted->first + wanted->count &&
           wanted->first < order->first_block + order->block_count;
}

#endif
