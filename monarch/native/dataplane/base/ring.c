/* ring.c - a bounded queue of fixed-size items, and an eventfd for its reader. */
#include "dataplane/base/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static char *item_at(const struct ring *r, uint32_t number)
{
    return r->items + (size_t)(number % r->capacity) * r->item_bytes;
}

/* ring_init - allocates room for `capacity` items. */
int ring_init(struct ring *r, size_t item_bytes, uint32_t capacity)
{
    *r = (struct ring){.item_bytes = item_bytes, .capacity = capacity};
    r->items = calloc(capacity, item_bytes);
    return r->items ? 0 : -ENOMEM;
}

/* ring_free - frees the ring, but nothing that its items point to. */
void ring_free(struct ring *r)
{
    free(r->items);
    r->items = NULL;
}

/* ring_push - appends a copy of the item; false: the ring is full. */
bool ring_push(struct ring *r, const void *item)
{
    if (r->count == r->capacity)
        return false;
    memcpy(item_at(r, r->first + r->count), item, r->item_bytes);
    r->count++;
    return true;
}

/* ring_peek - returns the oldest item, or NULL. */
const void *ring_peek(const struct ring *r)
{
    return r->count ? item_at(r, r->first) : NULL;
}

/* ring_at - returns an item; the oldest has number 0. */
void *ring_at(const struct ring *r, uint32_t number)
{
    return item_at(r, r->first + number);
}

/* ring_pop - removes the oldest item; false: the ring is empty. */
bool ring_pop(struct ring *r, void *item)
{
    if (!r->count)
        return false;
    memcpy(item, item_at(r, r->first), r->item_bytes);
    r->first = (r->first + 1) % r->capacity;
    r->count--;
    return true;
}

/* event_fd_open - opens the descriptor, not readable at first. */
int event_fd_open(struct event_fd *e)
{
    e->readable = false;
    e->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return e->fd < 0 ? -errno : 0;
}

/* event_fd_close - closes the descriptor if it is open. */
void event_fd_close(struct event_fd *e)
{
    if (e->fd >= 0)
        close(e->fd);
    e->fd = -1;
}

/* event_fd_set - makes the descriptor readable or not; the next call retries a change that
 * failed. */
void event_fd_set(struct event_fd *e, bool readable)
{
    uint64_t n = 1;
    if (readable && !e->readable)
        e->readable = write(e->fd, &n, sizeof(n)) == sizeof(n);
    else if (!readable && e->readable)
        e->readable = read(e->fd, &n, sizeof(n)) != sizeof(n);
}
