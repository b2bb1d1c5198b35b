/* peer_client.h - the client that fetches Files from peers, and its connections. The
 * public name of the client is struct receiver, see peers_api.h. */
#ifndef MONARCH_PEER_CLIENT_H
#define MONARCH_PEER_CLIENT_H

#include "dataplane/base/poller.h"
#include "dataplane/base/ring.h"
#include "dataplane/demand/demand.h"
#include "dataplane/peers/wire.h"
#include "dataplane/transfers/transfer.h"

enum {
    REQUESTS_MAX = 64,  /* of one connection without reply: the server's PIPELINE_MAX */
    REQUESTS_AHEAD = 4, /* of them for one fetch */
    IN_FLIGHT_MAX = 64, /* fetches of one connection */
    CLIENT_THREADS_MAX = 16,
    SPARES_MAX = 8,  /* buffers that a thread keeps for its connections */
    HINTED_MAX = 64, /* fetches for hints and fill, beyond which hints wait */
    HINTED_BYTES_MAX = 8 << 20,
    FETCHES_MAX = 4096, /* orders that are not collected yet */
    WANTS_MAX = 4096,
    CLIENT_PEERS_MAX = 1 << 16,
    CLIENT_TICK_MS = 50,      /* period of the check for time-outs */
    SIGNAL_MS = 10,           /* delay of waking Python for arrivals, at most */
    SILENT_MS = 1000,         /* ten acknowledgements are due in this time */
    RECEIVE_PIECE = 64 << 10, /* bytes of one recv(), at least */
    RECEIVE_TURN = 4 << 20,   /* bytes after which other peers get their turn */
    RECEIVE_BUFFER_BYTES = CHUNK_BYTES + 2 * RECEIVE_PIECE,
};

struct queued_fetch { /* an order that has not begun */
    struct monarch_order order;
    uint64_t since_ns;
    bool wanted; /* see struct fetch */
};

struct fetch { /* of a File, or of some Blocks of a large one */
    struct transfer transfer;
    struct block_run all; /* that it fetches */
    uint32_t next, came;  /* the next Block to request; Blocks received */
    /* how they may arrive packed, see packs_id(); or 0 */
    uint32_t packing, packing_tier;
    uint32_t open; /* requests without reply */
    uint64_t began_ns, progress_ns;
    uint64_t told;    /* progress that the peer last reported for the File */
    uint64_t replica; /* Replica of the peer from which Extents arrived; or 0 */
    bool used;
    bool pending; /* the peer has acknowledged a request and not begun its reply */
    bool ended;   /* its arrival is queued; only replies are missing */
    bool wanted;  /* programs wait for Blocks that fill has ordered */
};

struct sent_request {
    struct frame_request request;
    struct fetch *fetch; /* NULL: free */
    bool later;          /* no program waits for it */
};

struct coming {              /* a reply with bytes */
    struct sent_request *of; /* NULL: none arrives */
    struct frame_reply head;
    uint64_t left; /* bytes that have not arrived */
};

struct client_connection {
    int fd;
    uint32_t peer, events;
    uint64_t progress_ns; /* when the last piece of a reply arrived */
    uint64_t heard_ns; /* when the last byte arrived, or the first request was sent */
    uint64_t sequence;
    struct ring queue; /* struct queued_fetch */
    struct ring later; /* the same, of Blocks for which no program waits */
    struct fetch fetches[IN_FLIGHT_MAX];
    struct sent_request requests[REQUESTS_MAX];
    uint32_t open,
        open_later; /* requests without reply; of these, those that may wait */
    struct coming in;
    size_t first, fill;
    uint8_t *buffer; /* NULL while it would be empty */
    size_t out_bytes;
    uint8_t out[(REQUESTS_MAX + IN_FLIGHT_MAX) * sizeof(struct frame_request)];
};

struct client_thread { /* and the peers that it fetches from */
    struct receiver *receiver;
    uint32_t number;
    uint32_t running; /* orders that it has taken */
    /* When time-outs were checked, Python was signalled, and large Files were checked. */
    uint64_t checked_ns, signalled_ns, looked_ns;
    struct poller poller;
    uint8_t *spares[SPARES_MAX];
    uint32_t spare_count;
    struct ring commands; /* struct peer_command; under the lock */
    struct ring orders;   /* struct monarch_order; under the lock */
    struct ring wants;    /* struct page_want; under the lock */
};

struct receiver {
    struct demand *demand;
    struct monarch_receiver_options options;
    struct monarch_traffic *traffic;        /* per peer */
    struct client_connection **connections; /* per peer; used by its thread alone */
    struct client_thread threads[CLIENT_THREADS_MAX];
    pthread_mutex_t lock; /* guards the rings of the threads and the rest */
    struct ring done;     /* struct monarch_completion */
    uint32_t outstanding; /* orders that have not ended or are not collected */
    uint64_t background, background_bytes; /* of these, by fill */
    uint64_t waiting_bytes; /* of these, Blocks that the peers do not have yet */
    struct event_fd event_fd;
    bool failed; /* Python must be woken for an arrival in `done` */
};

/* client_thread_of - returns the thread that fetches from a peer. */
static inline struct client_thread *client_thread_of(struct receiver *r, uint32_t peer)
{
    return &r->threads[peer % r->options.threads];
}

/* client_queued - a connection has orders that have not begun. */
static inline bool client_queued(const struct client_connection *c)
{
    return c->queue.count || c->later.count;
}

/* client_idle - a connection has no requests and no orders. */
static inline bool client_idle(const struct client_connection *c)
{
    return !c->open && !client_queued(c);
}

/* peer_client_thread.c */
int receiver_new(struct demand *d, const struct monarch_receiver_options *options,
                 struct receiver **out);
/* peer_client_connection.c */
struct client_connection *client_new(uint32_t peer, int fd);
void client_queue(struct client_connection *c, const struct queued_fetch *fetch);
bool client_want(struct receiver *r, struct client_connection *c,
                 const struct page_want *wanted);
int client_receive(struct receiver *r, struct client_connection *c);
int client_send(struct receiver *r, struct client_connection *c, uint64_t now);
bool client_silent(const struct receiver *r, const struct client_connection *c,
                   uint64_t now);
void client_expire(struct receiver *r, struct client_connection *c, uint64_t now);
void client_end(struct receiver *r, struct client_connection *c, int status);

/* peer_client_fetch.c */
int fetch_begin(struct receiver *r, struct fetch *f, const struct monarch_order *order,
                uint64_t now);
bool fetch_has_requests(const struct fetch *f);
void fetch_set_pending(struct receiver *r, struct fetch *f, bool pending);
struct frame_request fetch_request(struct receiver *r, struct fetch *f, uint64_t id);
struct frame_request fetch_want(const struct receiver *r, const struct fetch *f);
void fetch_end(struct receiver *r, struct fetch *f, int status);
void fetch_refuse(struct receiver *r, const struct monarch_order *order, int status);
uint64_t fetch_background_bytes(const struct receiver *r, uint8_t kind, uint32_t file,
                                uint32_t pages);
void arrivals_signal(struct receiver *r, bool all);

/* peer_client_arrivals.c */
int fetched_begin(struct receiver *r, struct fetch *f, const struct coming *in);
int fetched_add(struct receiver *r, struct fetch *f, const uint8_t *bytes, size_t n);
int fetched_end(struct receiver *r, struct fetch *f, const struct coming *in,
                const uint8_t *last);

#endif
