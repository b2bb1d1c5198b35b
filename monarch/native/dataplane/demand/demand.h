/* demand.h - the requests of programs, peers and fill, and how they are begun. */
#ifndef MONARCH_DEMAND_H
#define MONARCH_DEMAND_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/demand/demand_api.h"
#include "dataplane/transfers/transfers.h"
#include "shared/presence.h"

struct eviction;
struct hints;
struct partial;
struct pool_queue;

enum {
    POOL_MS = 5, /* period of the check for Files that wait for space */
};

/* Files in an order, and how many of them fill has passed. */
struct fill_list {
    const uint32_t *files;
    uint64_t count, next;
};

struct fill {
    struct fill_list to_read, to_fetch;
    bool paused;         /* no program runs here: nothing is fetched from peers */
    uint64_t mean_bytes; /* of all Files */
};

/* Callbacks into the client of peers. All are called under the lock of the Transfers. */
struct fetcher {
    void *of; /* NULL: no peers yet, or no more */
    bool (*push)(void *of, const struct monarch_order *order);
    void (*want)(void *of, const struct page_want *wanted);
    void (*wake)(void *of);
    bool (*has_room)(void *of); /* for Files that no program has requested */
};

struct demand {
    struct job *job;
    struct table *table; /* NULL: Python orders every Transfer */
    struct packs *packs; /* NULL: no Tier is packed */
    struct partials *partials;
    struct pool *pool;         /* or NULL */
    struct eviction *eviction; /* NULL: no Tier evicts */
    struct transfers *transfers;
    struct pool_queue *pool_queue;
    struct hints *hints;       /* NULL: no program can give hints */
    uint64_t checked_ns;       /* used by the thread that waits for requests */
    _Atomic uint64_t asked_ns; /* last request of a program or a peer */
    /* guarded by the lock of the Transfers */
    struct fill fill;
    struct fetcher fetcher;
};

/* file_requests.c */
bool demand_wanted(const struct demand *d, uint32_t file);
void demand(struct demand *d, uint32_t file);
void demand_begin(struct demand *d, uint32_t file, uint32_t kind);
void demand_for_peer(struct demand *d, uint32_t file);

/* page_requests.c */
bool pages_send(struct demand *d, struct monarch_order *order);
void pages_want_rest(struct demand *d, struct partial *p);
void pages_check_asked(struct demand *d, uint32_t large, struct page_run run);
void pages_requested(struct demand *d, struct page_range range, bool unasked);
void pages_resume(struct demand *d);
void pages_check(struct demand *d);

/* pages.c */
extern const struct route route_pages;

/* page_copies.c */
int pages_copy(struct demand *d, struct transfer *t, struct page_run run,
               uint8_t *buffer);
int pages_end_extent(struct demand *d, struct transfer *t, uint32_t extent,
                     uint8_t *buffer);

/* fill.c - background fill; the callers hold the lock of the Transfers, except for
 * fill_paused() */
bool fill_may_read(const struct demand *d);
bool fill_read(struct demand *d, struct monarch_order *out);
uint64_t fill_fetch_room(const struct demand *d, uint64_t count, uint64_t bytes);
bool fill_fetch(struct demand *d, struct monarch_order *out);
bool fill_may_fetch(struct demand *d);
void fill_call(struct demand *d);
bool fill_fetch_next(struct demand *d);
bool fill_paused(struct demand *d);

/* orders.c */
bool order_push(struct demand *d, const struct monarch_order *order);
void start_order(struct demand *d, const struct monarch_order *order);
void fill_set(struct demand *d, const struct monarch_fill *fill);
void fill_set_paused(struct demand *d, int paused);
void fill_count_left(struct demand *d, uint64_t out[2]);
uint32_t orders_submit(struct demand *d, const struct monarch_order *orders,
                       uint32_t n);

/* pool_queue.c - Files that wait for space in the Pool */
int pool_queue_new(struct demand *d, struct pool_queue **out);
void pool_queue_free(struct pool_queue *q);
void pool_queue_wait(struct pool_queue *q, uint32_t file);
bool pool_queue_serve(struct pool_queue *q);

/* requests.c - the requests of programs, and the thread that waits for them */
void requests_listen(struct demand *d);
void requests_poll(struct demand *d);

#endif
