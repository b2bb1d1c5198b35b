/* peer_server.h - the server of this node's Replicas, and its connections to peers. */
#ifndef MONARCH_PEER_SERVER_H
#define MONARCH_PEER_SERVER_H

#include "dataplane/base/poller.h"
#include "dataplane/demand/demand.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/peers/open_replicas.h"
#include "dataplane/peers/wire.h"

enum {
    PIPELINE_MAX = 64,    /* requests of one connection that have no reply yet */
    SEND_TURN = 4 << 20,  /* bytes after which other connections get their turn */
    SEND_PIECE = 1 << 20, /* bytes of one sendfile() */
    SERVER_TICK_MS = 100, /* period of -EINPROGRESS, and of requests to Python */
    CONNECTIONS_MAX = 8192,
    SERVER_SPARES_MAX = 8,
};

struct pending_request {
    struct frame_request asked;
    uint64_t since_ns, forwarded_ns;
    bool whole;               /* an Extent, which is not copied in part */
    uint32_t failures;        /* of the File when the request arrived */
    int32_t status;           /* known already, or 0 */
    bool ready;               /* the range was present when the request arrived */
    uint32_t progress;        /* of the File, for a request of Blocks */
    uint64_t acknowledged_ns; /* when it was last acknowledged as pending */
};

struct reply { /* that is being sent */
    bool active;
    uint32_t head_sent;
    struct frame_reply head;
    struct open_replica *replica; /* with its bytes, or NULL */
    struct open_replica single;
    uint8_t *bytes; /* or its bytes in memory */
    bool large;     /* `bytes` has more than CHUNK_BYTES */
    int64_t offset;
    uint64_t left;
};

struct server_connection {
    int fd;
    uint32_t peer, slot; /* its number among the connections of the server */
    uint32_t events;     /* that the poller waits for */
    uint32_t pending_count;
    bool waits;                        /* a request waits for its File */
    bool counted_waits, counted_sends; /* as counted by the server */
    bool turn_over;                    /* it could send more */
    uint64_t progress_ns;
    size_t in_bytes;
    uint8_t in[PIPELINE_MAX * sizeof(struct frame_request)];
    struct pending_request pending[PIPELINE_MAX];
    struct reply out;
};

struct server {
    struct demand *demand;
    struct monarch_server_options options;
    struct monarch_traffic *traffic; /* per peer */
    struct poller poller;
    struct state_watch watch;
    struct open_replica replicas[OPEN_REPLICAS_MAX];
    struct server_connection **connections; /* used by the thread alone */
    uint32_t waiting, sending;              /* connections that wait, and that send */
    uint32_t slots_used;                    /* connections[] at or above: never used */
    uint8_t *spares[SERVER_SPARES_MAX];     /* buffers for Blocks */
    uint32_t spare_count;
    pthread_mutex_t lock;      /* guards the rest */
    struct ring commands;      /* struct peer_command */
    uint32_t connection_count; /* open, or in a command */
};

/* peer_server_thread.c */
int server_new(struct demand *d, const struct monarch_server_options *options,
               struct server **out);

/* peer_server_replies.c */
bool reply_is_there(struct server *s, const struct pending_request *p, uint64_t now);
bool reply_is_ready(struct server *s, const struct pending_request *p);
void reply_ask(struct server *s, const struct pending_request *p);
int reply_attach(struct server *s, const struct pending_request *p, struct reply *out);
void reply_release(struct server *s, struct reply *out);

/* peer_server_connection.c */
int connection_read(struct server *s, struct server_connection *c);
int connection_send(struct server *s, struct server_connection *c, uint64_t now);
void connection_close(struct server *s, struct server_connection *c);

#endif
