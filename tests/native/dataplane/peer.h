/* peer.h - two nodes for tests: one that holds the Files, one that fetches them. */
#ifndef TEST_PEER_H
#define TEST_PEER_H

#include <pthread.h>
#include <stdatomic.h>

#include "board.h"
#include "dataplane/base/clock.h"
#include "dataplane/peers/wire.h"

enum { OWNER = 3, PEERS = 5, PATIENCE_NS_MAX = 60 }; /* node number; seconds */

struct pair {
    struct board *owner, *asker;
    struct server *server;
    struct receiver *receiver;
    struct monarch_server_options serves;
    struct monarch_receiver_options receives;
    pthread_t agent; /* stages requested Files at the owner */
    atomic_bool agent_ends;
    atomic_uint staged; /* its orders */
    bool agent_runs;
};

struct ends {
    int asks, serves;
};

void pair_new(struct pair *p, uint32_t files, const uint64_t *sizes);
void pair_free(struct pair *p);
void pair_start_agent(struct pair *p);
struct ends ends_local(void);
struct ends ends_tcp(void);
void pair_connect(struct pair *p, struct ends ends);
void pair_submit(struct pair *p, uint32_t file);
struct monarch_completion pair_wait(struct pair *p);
struct monarch_completion pair_fetch(struct pair *p, uint32_t file);
struct monarch_traffic pair_served(struct pair *p);
struct monarch_traffic pair_received(struct pair *p);
void pair_until_closed(struct pair *p); /* the server has no connection left */
/* The server counts bytes a moment after the receiver has them. */
void pair_until_served(struct pair *p, uint64_t bytes);
void make_ready(struct board *b, uint32_t file);
void unpublish(struct board *b, uint32_t file);
bool nothing_published(struct board *b, uint32_t file);
unsigned descriptors_open(void);

/* A peer played by the test itself. */
struct frame_request take_request(int fd);
struct frame_request ask_extent(struct board *b, uint64_t id, uint32_t file,
                                uint32_t extent);
void put_reply(int fd, const struct frame_reply *head, const void *bytes);
struct frame_reply reply_to(const struct frame_request *f);

#endif
