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
    FETCHES_OPEN_MAX = 64, /* Files that one peer fetches at once */
    SERVER_SPARES_MAX = 8,
};

struct pending_request {
    uint64_t id, since_ns, forwarded_ns;
    uint32_t file, extent;    /* or the first Block */
    uint8_t blocks;           /* 0: it is for the Extent */
    uint8_t wanted, flags;    /* see struct frame_request */
    uint32_t packing;         /* the File may be sent packed so, see packs_id(); or 0 */
    uint32_t failures;        /* of the File when the request came */
    int32_t status;           /* known already, or 0 */
    bool ready;               /* it was there when the request came */
    uint32_t come;            /* how far the File has come, where it is for Blocks */
    uint64_t acknowledged_ns; /* when the peer was last told that it is pending */
};

struct
    fetched_file { /* a File of several Extents, and the Replica that they come from */
    uint64_t file, stamp; /* file: its number + 1; 0 = free */
};

struct reply { /* that is being sent */
    bool active;
    uint32_t head_sent;
    struct frame_reply head;
    struct open_replica *replica; /* where its bytes come from, or NULL */
    struct open_replica single;
    uint8_t *bytes; /* or they are here */
    bool large;     /* these are more than CHUNK_BYTES */
    int64_t offset;
    uint64_t left;
};

struct server_connection {
    int fd;
    uint32_t peer, slot; /* its number among the connections of the server */
    uint32_t events;     /* that the poller waits for */
    uint32_t pending_count;
    bool waits;                        /* a request waits for its File */
    bool counted_waits, counted_sends; /* as they are in the counts of the server */
    bool turn_over;                    /* it could send more */
    uint64_t progress_ns;
    size_t in_bytes;
    uint8_t in[PIPELINE_MAX * sizeof(struct frame_request)];
    struct pending_request pending[PIPELINE_MAX];
    struct fetched_file fetched[FETCHES_OPEN_MAX];
    uint32_t fetched_next; /* the slot to reuse next */
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

/* peer_server_blocks.c */
bool server_blocks_there(struct server *s, const struct pending_request *p);
void server_blocks_ask(struct server *s, const struct pending_request *p);
void server_blocks_want(struct server *s, struct server_connection *c,
                        const struct frame_request *f);
int server_blocks_attach(struct server *s, const struct pending_request *p,
                         struct reply *out);

/* packed_replies.c */
int server_certify(struct sealer *sealer, const struct extent_name *name,
                   const uint8_t *bytes, struct frame_reply *head);
uint8_t *server_take_buffer(struct server *s);
void server_return_buffer(struct server *s, uint8_t **buffer);
bool server_frame_there(struct server *s, const struct pending_request *p);
bool server_frame_comes(struct server *s, const struct pending_request *p,
                        uint64_t now);
int server_frame_attach(struct server *s, const struct pending_request *p,
                        struct reply *out);

/* packed_block_replies.c */
bool server_piece_there(struct server *s, const struct pending_request *p);
int server_piece_attach(struct server *s, const struct pending_request *p,
                        struct reply *out);

/* peer_server_connection.c */
int connection_read(struct server *s, struct server_connection *c);
int connection_send(struct server *s, struct server_connection *c, uint64_t now);
void connection_close(struct server *s, struct server_connection *c);

#endif
