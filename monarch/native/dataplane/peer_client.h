/* peer_client.h - one connection on which this node asks a peer for Files. */
#ifndef MONARCH_FETCH_H
#define MONARCH_FETCH_H

#include "dataplane/wire.h"
#include "dataplane/poller.h"
#include "dataplane/monarch.h"
#include "dataplane/ring.h"
#include "dataplane/transfer.h"

enum {
    ASKED_PER_LINK = 64, /* requests that are not answered; no server parks more */
    EXTENTS_AHEAD = 4,   /* of them for one File */
    IN_FLIGHT_MAX = 64,
    LANES_MAX = 16,
    SPARES_MAX = 8,     /* buffers that a lane keeps for links that will need one */
    FETCHES_MAX = 4096, /* orders that were not yet collected */
    RECEIVER_PEERS_MAX = 1 << 16,
    RECEIVER_TICK_MS = 50, /* how often orders are looked through for late ones */
    TELL_MS = 10,          /* how late Python may hear of what has come */
    SILENT_MS = 1000,      /* nodes that keep others waiting say so ten times in this */
    RECEIVE_PIECE = 64 << 10, /* asked of the socket at least */
    RECEIVE_TURN = 4 << 20,   /* bytes after which other peers get their turn */
    LINK_BUFFER_BYTES = CHUNK_BYTES + 2 * RECEIVE_PIECE,
};

struct waiting { /* an order that has not begun */
    struct monarch_fetch order;
    uint64_t since_ns;
};

struct flight { /* one File that is being fetched */
    struct monarch_fetch order;
    struct transfer transfer;
    uint32_t extents, asked, landed;
    uint32_t open; /* requests that are not answered */
    uint64_t began_ns, moved_ns;
    bool used;
    bool waits; /* the peer knows of it, and has not begun to send it */
    bool ended; /* told to Python; only its open requests are waited for */
};

struct asked {
    struct frame_request request;
    struct flight *flight; /* NULL: free */
};

struct link {
    int fd;
    uint32_t peer, events;
    uint64_t moved_ns; /* when an answer came last, or a piece of one */
    uint64_t
        heard_ns; /* when anything came last, or was asked for when nothing was due */
    uint64_t sequence;
    struct ring queue; /* of struct waiting */
    struct flight flights[IN_FLIGHT_MAX];
    struct asked asked[ASKED_PER_LINK];
    uint32_t asked_count;
    struct asked *current; /* whose reply's bytes are coming */
    struct frame_reply head;
    uint64_t left; /* of these bytes */
    size_t first, fill;
    uint8_t *buffer; /* NULL: no bytes lie in it */
    size_t out_bytes;
    uint8_t out[ASKED_PER_LINK * sizeof(struct frame_request)];
};

struct
    lane { /* a thread and what is its own: the links of the peers that it fetches from */
    struct receiver *receiver;
    uint32_t number;
    uint32_t running; /* orders that it has taken */
    struct loop loop;
    uint8_t *spares[SPARES_MAX];
    uint32_t spare_count;
    struct ring hands;  /* what Python has handed over: connections; under the lock */
    struct ring orders; /* and orders; under the lock */
};

struct receiver {
    struct engine *engine;
    struct monarch_receiver_options options;
    struct monarch_traffic *traffic; /* per peer */
    struct link **links;             /* per peer; its lane's own */
    struct lane lanes[LANES_MAX];
    int event_fd;
    pthread_mutex_t lock; /* guards the rings of the lanes and the rest */
    struct ring done;
    uint32_t outstanding;
    bool signalled; /* event_fd is readable */
    bool failed;    /* something in `done` is worth waking Python for */
};

/* lane_of - the thread that a peer belongs to. */
static inline struct lane *lane_of(struct receiver *r, uint32_t peer)
{
    return &r->lanes[peer % r->options.threads];
}

struct link *link_new(uint32_t peer, int fd);
int link_read(struct receiver *r, struct link *l);
int link_pump(struct receiver *r, struct link *l, uint64_t now);
bool link_idle(const struct link *l);
bool link_quiet(const struct receiver *r, const struct link *l, uint64_t now);
void link_expire(struct receiver *r, struct link *l, uint64_t now);
void link_end(struct receiver *r, struct link *l, int status);

void receive_done(struct receiver *r, const struct monarch_arrival *arrival);

#endif
