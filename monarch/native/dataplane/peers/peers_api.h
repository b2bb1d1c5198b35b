/* peers_api.h - the interface of libmonarch.so by which nodes serve each other. */
#ifndef MONARCH_PEERS_API_H
#define MONARCH_PEERS_API_H

#include <stdint.h>

#include "dataplane/base/export.h"
#include "dataplane/extents/order_api.h"

/* Counts of one peer; a count that only one side has is 0 at the other. */
struct monarch_traffic {
    uint64_t connections; /* open now */
    uint64_t requests;    /* received by a server, sent by a receiver */
    uint64_t replies;     /* with bytes */
    uint64_t ranges;      /* server: replies with Blocks among these */
    uint64_t bytes;       /* of Files */
    uint64_t refused;     /* replies without bytes */
    uint64_t late;    /* server: -EAGAIN among these; receiver: orders that timed out */
    uint64_t corrupt; /* receiver: Extents with a wrong checksum or seal */
    uint64_t malformed; /* connections closed because of a malformed frame */
    uint64_t lost;      /* connections closed for any reason */
};

struct monarch_server_options {
    uint32_t peers;       /* their numbers are below this */
    uint32_t connections; /* of all peers together */
    uint32_t park_ms;     /* how long a request waits for its File */
    uint32_t stall_ms;    /* how long a peer may read nothing while bytes wait for it */
};

struct monarch_receiver_options {
    uint32_t peers;
    uint32_t in_flight;  /* Files fetched from one peer at once */
    uint32_t timeout_ms; /* of an order without any byte */
    uint32_t react_ms;   /* of a peer that sends nothing while a reply is due */
    uint32_t threads;    /* each fetches from its share of the peers */
    uint32_t sealed;     /* 1: Extents are verified by their seals */
};

struct monarch_completion;
struct server;
struct receiver;

MONARCH_API int monarch_server_adopt(struct server *s, uint32_t peer, int fd);
MONARCH_API int monarch_server_drop(struct server *s, uint32_t peer);
MONARCH_API void monarch_server_traffic(const struct server *s,
                                        struct monarch_traffic *out);
MONARCH_API void monarch_server_free(struct server *s);

MONARCH_API int monarch_receiver_event_fd(const struct receiver *r);
MONARCH_API int monarch_receiver_connect(struct receiver *r, uint32_t peer, int fd);
MONARCH_API int monarch_receiver_disconnect(struct receiver *r, uint32_t peer);
MONARCH_API uint32_t monarch_receiver_submit(struct receiver *r,
                                             const struct monarch_order *orders,
                                             uint32_t n);
MONARCH_API uint32_t monarch_receiver_arrivals(struct receiver *r,
                                               struct monarch_completion *out,
                                               uint32_t max);
MONARCH_API void monarch_receiver_traffic(const struct receiver *r,
                                          struct monarch_traffic *out);
MONARCH_API void monarch_receiver_free(struct receiver *r);

#endif
