/* ring.h - a bounded queue of fixed-size items, and an eventfd for its reader; the caller locks
 * both. */
#ifndef MONARCH_RING_H
#define MONARCH_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    char *items;
    size_t item_bytes;
    uint32_t first, count, capacity;
};

struct event_fd { /* readable exactly while the reader has something to collect */
    int fd;
    bool readable;
};

int ring_init(struct ring *r, size_t item_bytes, uint32_t capacity);
void ring_free(struct ring *r);
bool ring_push(struct ring *r, const void *item);
bool ring_pop(struct ring *r, void *item);
const void *ring_peek(const struct ring *r);
void *ring_at(const struct ring *r, uint32_t number);

int event_fd_open(struct event_fd *e);
void event_fd_close(struct event_fd *e);
void event_fd_set(struct event_fd *e, bool readable);

#endif
