/* ring.c - a bounded queue of fixed-size items. */
#include "dataplane/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *item_at(const struct ring *r, uint32_t number)
{
    return r->items + (size_t)(number % r->capacity) * r->item_bytes;
}

/* ring_init - reserves room for `capacity` items. */
int ring_init(struct ring *r, size_t item_bytes, uint32_t capacity)
{
    *r = (struct ring){.item_bytes = item_bytes, .capacity = capacity};
    r->items = calloc(capacity, item_bytes);
    return r->items ? 0 : -ENOMEM;
}

/* ring_free - releases the room; what lies in it is the caller's. */
void ring_free(struct ring *r)
{
    free(r->items);
    r->items = NULL;
}

/* ring_push - appends a copy of the item; false when the ring is full. */
bool ring_push(struct ring *r, const void *item)
{
    if (r->count == r->capacity)
        return false;
    memcpy(item_at(r, r->first + r->count), item, r->item_bytes);
    r->count++;
    return true;
}

/* ring_peek - the oldest item, or NULL. */
const void *ring_peek(const struct ring *r)
{
    return r->count ? item_at(r, r->first) : NULL;
}

/* ring_at - an item, the oldest being number 0. */
const void *ring_at(const struct ring *r, uint32_t number)
{
    return item_at(r, r->first + number);
}

/* ring_pop - takes the oldest item out; false when there is none. */
bool ring_pop(struct ring *r, void *item)
{
    if (!r->count)
        return false;
    memcpy(item, item_at(r, r->first), r->item_bytes);
    r->first = (r->first + 1) % r->capacity;
    r->count--;
    return true;
}
