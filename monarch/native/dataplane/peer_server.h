/* peer_server.h - one connection on which a peer asks and this node answers. */
#ifndef MONARCH_ANSWER_H
#define MONARCH_ANSWER_H

#include "dataplane/wire.h"
#include "dataplane/open_replicas.h"
#include "dataplane/poller.h"
#include "dataplane/monarch.h"
#include "dataplane/replica_state.h"

enum {
    PIPELINE_MAX = 64,    /* requests of one connection that are not answered yet */
    SEND_TURN = 4 << 20,  /* bytes after which other connections get their turn */
    SEND_PIECE = 1 << 20, /* bytes of one sendfile() */
    SERVER_TICK_MS =
        100, /* how often a File is asked for again, and who waits told so */
    CONNECTIONS_MAX = 8192,
    FETCHES_OPEN_MAX = 64, /* Files that one peer fetches at once */
};

struct pending {
    uint64_t id, since_ns, asked_ns;
    uint32_t file, extent;
    int32_t status; /* known already, or 0 */
    bool ready;     /* the File was, when this came */
    bool told;      /* the peer knows that it waits */
};

struct begun { /* a File of several Extents, and the Replica that they are read from */
    uint64_t file, stamp; /* file: its number + 1; 0 = free */
};

struct outgoing { /* the reply that is being sent */
    bool active;
    uint32_t head_sent;
    struct frame_reply head;
    struct kept *kept; /* where its bytes come from, or NULL */
    struct kept single;
    int64_t offset;
    uint64_t left;
};

struct connection {
    int fd;
    uint32_t peer, place; /* its number among the server's connections */
    uint32_t events;      /* that its loop waits for */
    uint32_t pending_count;
    bool waits;                        /* one of its requests waits for a File */
    bool counted_waits, counted_sends; /* as the server has them in its numbers */
    bool more; /* it could go on sending, but its turn was over */
    uint64_t moved_ns;
    size_t in_bytes;
    uint8_t in[PIPELINE_MAX * sizeof(struct frame_request)];
    struct pending pending[PIPELINE_MAX];
    struct begun begun[FETCHES_OPEN_MAX];
    uint32_t begun_next; /* the place to use again next */
    struct outgoing out;
};

struct server {
    struct engine *engine;
    struct monarch_server_options options;
    struct monarch_traffic *traffic; /* per peer */
    struct loop loop;
    struct watch watch;
    struct kept kept[KEPT_MAX];
    struct connection **connections; /* the thread's own */
    uint32_t waiting, sending;       /* how many of them do */
    uint32_t places;                 /* that were ever used */
    pthread_mutex_t lock;            /* guards the rest */
    struct ring hands;               /* what Python has handed over */
    uint32_t taken;                  /* connections, handed over or open */
};

int answer_read(struct server *s, struct connection *c);
int answer_pump(struct server *s, struct connection *c, uint64_t now);
void answer_release(struct connection *c);

#endif
