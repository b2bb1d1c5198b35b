/* nodes.h - two nodes that share one large File by their tables, and another peer that
 * the test plays itself. */
#ifndef TEST_NODES_H
#define TEST_NODES_H

#include "peer.h"

enum {
    ASKER = 1,
    PLAYED = 2, /* the peer played by the test; OWNER is the other node */
    LARGE_BYTES = 2 * EXTENT_BYTES + 300000,
    LARGE_BLOCKS = (LARGE_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES,
    LARGE_EXTENTS = 3,
};

struct node {
    struct board *board;
    struct table *table;
    struct monarch_table_row rows[LARGE_EXTENTS];
    uint64_t first[2];
    uint32_t bases[1];
    struct server *server;
    struct receiver *receiver;
    bool waits; /* the File is not large in its configuration: programs wait for it */
};

struct nodes {
    struct node owner, asker;
    struct monarch_receiver_options receives;
};

/* nodes_begin - the asker asks these peers, in this order; NO_SOURCE: the origin. */
void nodes_begin(struct nodes *n, uint16_t source, uint16_t next);
void nodes_begin_large_for_asker(struct nodes *n);
void nodes_begin_large_for_owner(struct nodes *n);
void nodes_connect(struct nodes *n);
void nodes_until_counted(struct nodes *n); /* no copy is running any more */
void nodes_settle(struct nodes *n);        /* and the nodes have stopped */
void nodes_end(struct nodes *n);
void node_stop(struct node *node);
void node_offer(struct node *node);
uint64_t node_origin_bytes(struct node *node);
uint64_t node_peer_bytes(struct node *node);
struct monarch_traffic node_served(struct node *node, uint32_t peer);

/* Blocks of the File, as programs read them; node_read() waits until they are right. */
void node_ask(struct node *node, uint32_t slot, uint32_t first, uint32_t count);
void node_read(struct node *node, uint32_t slot, uint32_t first, uint32_t count);
uint32_t node_present(struct node *node);
bool node_ready(struct node *node);
void node_until_ready(struct node *node);
void node_until_present(struct node *node, uint32_t count);
void node_spoil(struct node *node, uint32_t block); /* on its disk */

/* The next failed order of the asker, and a check for no other. */
struct monarch_completion nodes_failed(struct nodes *n);
bool nodes_none_failed(struct nodes *n);

/* The peer played by the test: its end of a connection, the requests to it, and the
 * reply of another node. */
struct blocks_reply {
    struct frame_reply head;
    uint8_t *bytes;
};

int played_connect(struct nodes *n);
struct frame_request played_take(int fd);
struct blocks_reply played_right(struct nodes *n, const struct frame_request *asked);
void played_give(int fd, struct blocks_reply *reply); /* and frees it */
void played_refuse(int fd, const struct frame_request *asked, int status);

/* Or it asks the owner: played_answer() skips replies that ask it to wait. */
int played_ask(struct nodes *n);
void played_send(int fd, uint32_t first, uint8_t count, uint8_t wanted, uint8_t flags);
void played_is_known(int fd); /* the request waits */
struct frame_reply played_answer(int fd, uint8_t *bytes);

#endif
