/* nodes.c - two nodes that share one large File, and a peer played by the test. */
#include "nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/api/engine.h"
#include "dataplane/media/seal.h"
#include "ranges.h"
#include "shared/catalog.h"
#include "shared/presence.h"
#include "shared/xxh3.h"

enum { ROOM = 64 << 20, ASK_AGAIN = 50, SETTLE_MS = 20 };

/* ---- two nodes --------------------------------------------------------------------- */

static void make_table(struct node *node, uint32_t own, uint16_t source, uint16_t next)
{
    struct board *b = node->board;
    node->first[1] = LARGE_EXTENTS;
    const struct monarch_table_options options = {
        .sizes = b->sizes,
        .words = (uint32_t *)(uintptr_t)replica_word(b->catalog, 0),
        .marks = b->flags->written,
        .root_marks = b->flags->roots,
        .bases = node->bases,
        .first = node->first,
        .files = 1,
        .roots = 1,
        .tiers = 1,
        .large_bytes = node->waits ? LARGE_BYTES : EXTENT_BYTES,
    };
    CHECK(monarch_table_new(&options, &node->table) == 0);
    monarch_table_set_capacity(node->table, 0, ROOM);
    for (uint32_t i = 0; i < LARGE_EXTENTS; i++)
        node->rows[i] = (struct monarch_table_row){
            .destination = DESTINATION_TIER, .sources = {source, next, NO_SOURCE}};
    const struct monarch_plan plan = {.rows = node->rows, .own = own, .peers = PEERS};
    CHECK(monarch_table_follow(node->table, &plan) == 0);
    for (uint32_t i = 0; i < PEERS; i++)
        monarch_table_set_peer(node->table, i, PEER_USABLE);
    b->options.table = node->table;
}

static void start_owner(struct node *owner)
{
    const struct monarch_server_options serves = {
        .peers = PEERS, .connections = 32, .park_ms = 60000, .stall_ms = 60000};
    make_table(owner, OWNER, NO_SOURCE, NO_SOURCE);
    board_start(owner->board, 3, 2);
    CHECK(monarch_server_new(owner->board->engine, &serves, &owner->server) == 0);
}

static void begin(struct nodes *n, uint16_t source, uint16_t next)
{
    const uint64_t size = LARGE_BYTES;
    n->owner.board = board_new(1, &size);
    n->asker.board = board_new(1, &size);
    if (n->owner.waits)
        n->owner.board->flags->presence = 0;
    if (n->asker.waits)
        n->asker.board->flags->presence = 0;
    start_owner(&n->owner);
    make_table(&n->asker, ASKER, source, next);
    board_start(n->asker.board, 2, 1);
    if (!n->receives.peers)
        n->receives = (struct monarch_receiver_options){.peers = PEERS,
                                                        .in_flight = 16,
                                                        .timeout_ms = 60000,
                                                        .react_ms = 60000,
                                                        .threads = 2};
    n->receives.sealed = n->asker.board->options.seal_key != NULL;
    CHECK(monarch_receiver_new(n->asker.board->engine, &n->receives,
                               &n->asker.receiver) == 0);
}

void nodes_begin(struct nodes *n, uint16_t source, uint16_t next)
{
    begin(n, source, next);
}

/* nodes_begin_large_for_asker - the owner has another cold_open.wait_max. */
void nodes_begin_large_for_asker(struct nodes *n)
{
    n->owner.waits = true;
    begin(n, OWNER, NO_SOURCE);
}

/* nodes_begin_large_for_owner - the asker has another cold_open.wait_max. */
void nodes_begin_large_for_owner(struct nodes *n)
{
    n->asker.waits = true;
    begin(n, OWNER, NO_SOURCE);
}

/* nodes_connect - from now on the asker can send requests to the owner. */
void nodes_connect(struct nodes *n)
{
    struct ends ends = ends_local();
    CHECK(monarch_server_adopt(n->owner.server, ASKER, ends.serves) == 0);
    CHECK(monarch_receiver_connect(n->asker.receiver, OWNER, ends.asks) == 0);
}

static bool is_busy(struct node *node)
{
    struct monarch_tally t;
    monarch_table_tally(node->table, &t);
    return t.in_flight > 0;
}

/* nodes_until_counted - ended Transfers are counted a moment later. */
void nodes_until_counted(struct nodes *n)
{
    uint64_t limit = clock_ns() + PATIENCE_NS_MAX * SECOND_NS;
    do {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, SETTLE_MS);
    } while (is_busy(&n->owner) || is_busy(&n->asker));
}

/* nodes_settle - waits for running Transfers, too: the counts are whole. */
void nodes_settle(struct nodes *n)
{
    nodes_until_counted(n);
    node_stop(&n->asker);
    node_stop(&n->owner);
}

/* node_stop - keeps its table and its board. */
void node_stop(struct node *node)
{
    if (node->receiver)
        monarch_receiver_free(node->receiver);
    if (node->server)
        monarch_server_free(node->server);
    node->receiver = NULL;
    node->server = NULL;
    board_stop(node->board);
}

/* node_offer - restarts the owner, as a job that finds an earlier job's Replica. */
void node_offer(struct node *owner)
{
    struct inodes *known = owner->board->inodes;
    CHECK(node_ready(owner));
    node_stop(owner);
    monarch_table_free(owner->table);
    memset(known->slots, 0, known->slot_count * sizeof(struct inode));
    board_set_state(owner->board, 0, STATE_WORD(REPLICA_ABSENT, 0, 0));
    start_owner(owner);
    CHECK(monarch_table_offer(owner->table, 0, 0) == 1);
}

void nodes_end(struct nodes *n)
{
    struct node *all[] = {&n->asker, &n->owner};
    for (int i = 0; i < 2; i++) {
        bool ready = node_ready(all[i]);
        node_stop(all[i]);
        CHECK(board_names(all[i]->board, "") ==
              ready); /* an incomplete file is removed */
        board_free(all[i]->board);
        monarch_table_free(all[i]->table);
    }
    *n = (struct nodes){0};
}

uint64_t node_origin_bytes(struct node *node)
{
    struct monarch_tally t;
    monarch_table_tally(node->table, &t);
    return t.origin_read_bytes;
}

uint64_t node_peer_bytes(struct node *node)
{
    struct monarch_tally t;
    monarch_table_tally(node->table, &t);
    return t.peer_bytes;
}

struct monarch_traffic node_served(struct node *node, uint32_t peer)
{
    struct monarch_traffic all[PEERS];
    monarch_server_traffic(node->server, all);
    return all[peer];
}

/* ---- reads of programs ----------------------------------------------------------- */

/* pages_of_blocks - the number of Pages in some Blocks. */
static uint32_t pages_of_blocks(uint32_t first, uint32_t count)
{
    uint32_t left = pages_of(LARGE_BYTES) - first * BLOCK_PAGES;
    return count * BLOCK_PAGES < left ? count * BLOCK_PAGES : left;
}

void node_ask(struct node *node, uint32_t slot, uint32_t first, uint32_t count)
{
    range_ask(
        node->board, slot,
        (struct page_range){0, first * BLOCK_PAGES, pages_of_blocks(first, count)});
}

static bool is_present(struct node *node, uint32_t block)
{
    return pages_there(presence_words(node->board->flags, 0), block * BLOCK_PAGES,
                       pages_of_blocks(block, 1));
}

void node_read(struct node *node, uint32_t slot, uint32_t first, uint32_t count)
{
    uint64_t limit = clock_ns() + PATIENCE_NS_MAX * SECOND_NS;
    for (uint32_t at = first; at < first + count; at++) {
        for (int turn = 0; !node_ready(node) && !is_present(node, at); turn++) {
            if (turn % ASK_AGAIN == 0)
                node_ask(node, slot, first, count);
            CHECK(clock_ns() < limit);
            poll(NULL, 0, 1);
        }
        CHECK(board_block_right(node->board, 0, at));
    }
}

uint32_t node_present(struct node *node)
{
    uint32_t sum = 0;
    for (uint32_t block = 0; block < LARGE_BLOCKS; block++)
        sum += is_present(node, block);
    return sum;
}

bool node_ready(struct node *node)
{
    return STATE_OF(board_state(node->board, 0)) == REPLICA_READY;
}

void node_until_ready(struct node *node)
{
    uint64_t limit = clock_ns() + PATIENCE_NS_MAX * SECOND_NS;
    while (!node_ready(node)) {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, 1);
    }
}

void node_until_present(struct node *node, uint32_t count)
{
    uint64_t limit = clock_ns() + PATIENCE_NS_MAX * SECOND_NS;
    while (node_present(node) < count) {
        CHECK(clock_ns() < limit);
        poll(NULL, 0, 1);
    }
    CHECK(node_present(node) == count);
}

void node_spoil(struct node *node, uint32_t block)
{
    char path[512], byte;
    off_t at = (off_t)block * BLOCK_BYTES + 77;
    board_replica_path(node->board, 0, path);
    CHECK(chmod(path, 0600) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && fchmod(fd, 0400) == 0);
    close(fd);
}

struct monarch_completion nodes_failed(struct nodes *n)
{
    struct monarch_completion done;
    struct pollfd fd = {.fd = monarch_receiver_event_fd(n->asker.receiver),
                        .events = POLLIN};
    while (monarch_receiver_arrivals(n->asker.receiver, &done, 1) == 0)
        CHECK(poll(&fd, 1, 1000 * PATIENCE_NS_MAX) == 1);
    return done;
}

bool nodes_none_failed(struct nodes *n)
{
    struct monarch_completion done;
    return monarch_receiver_arrivals(n->asker.receiver, &done, 1) == 0 &&
           monarch_engine_completions(n->asker.board->engine, &done, 1) == 0;
}

/* ---- the peer that the test plays ------------------------------------------------------ */

/* ends_patient - the test's end of it has a time-out. */
static struct ends ends_patient(void)
{
    const struct timeval patience = {.tv_sec = PATIENCE_NS_MAX};
    struct ends ends = ends_local();
    int fds[] = {ends.asks, ends.serves};
    for (int i = 0; i < 2; i++)
        CHECK(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience,
                         sizeof(patience)) == 0);
    return ends;
}

int played_connect(struct nodes *n)
{
    struct ends ends = ends_patient();
    CHECK(monarch_receiver_connect(n->asker.receiver, PLAYED, ends.asks) == 0);
    return ends.serves;
}

struct frame_request played_take(int fd)
{
    struct frame_request f;
    CHECK(recv(fd, &f, sizeof(f), MSG_WAITALL) == sizeof(f));
    CHECK(f.magic == FRAME_REQUEST_MAGIC && f.blocks <= FRAME_BLOCKS_MAX);
    return f;
}

/* seal - acts as a node of the job, where the nodes make seals. */
static void seal(struct nodes *n, struct blocks_reply *a, uint32_t blocks)
{
    const struct range_name name = {a->head.file, a->head.first, a->head.size, blocks};
    struct sealer *sealer;
    if (!n->receives.sealed) {
        a->head.digest = xxh3(a->bytes, a->head.size, 0);
        return;
    }
    CHECK(sealer_new(board_key, n->asker.board->catalog->digest, &sealer) == 0);
    CHECK(seal_nonce(&a->head.seal) == 0);
    CHECK(seal_make(sealer, &name, a->bytes, &a->head.seal) == 0);
    sealer_free(sealer);
}

/* played_right - the reply of a node that has the Blocks. */
struct blocks_reply played_right(struct nodes *n, const struct frame_request *asked)
{
    char path[512];
    struct blocks_reply a = {.head = reply_to(asked)};
    a.head.size = blocks_bytes(LARGE_BYTES, asked->first, asked->blocks);
    a.bytes = malloc(a.head.size);
    board_origin_path(n->owner.board, 0, path);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && a.bytes);
    CHECK(pread(fd, a.bytes, a.head.size, (off_t)asked->first * BLOCK_BYTES) ==
          (ssize_t)a.head.size);
    close(fd);
    seal(n, &a, asked->blocks);
    return a;
}

/* played_give - the asker may close the connection before it has read everything. */
void played_give(int fd, struct blocks_reply *reply)
{
    if (send(fd, &reply->head, sizeof(reply->head), MSG_NOSIGNAL) > 0)
        send(fd, reply->bytes, reply->head.size, MSG_NOSIGNAL);
    free(reply->bytes);
    reply->bytes = NULL;
}

void played_refuse(int fd, const struct frame_request *asked, int status)
{
    struct frame_reply head = reply_to(asked);
    head.status = status;
    put_reply(fd, &head, NULL);
}

int played_ask(struct nodes *n)
{
    struct ends ends = ends_patient();
    CHECK(monarch_server_adopt(n->owner.server, PLAYED, ends.serves) == 0);
    return ends.asks;
}

void played_send(int fd, uint32_t first, uint8_t count, uint8_t wanted, uint8_t flags)
{
    const struct frame_request f = {.magic = FRAME_REQUEST_MAGIC,
                                    .blocks = count,
                                    .wanted = wanted,
                                    .flags = flags,
                                    .id = first,
                                    .first = first};
    CHECK(send(fd, &f, sizeof(f), MSG_NOSIGNAL) == sizeof(f));
}

void played_is_known(int fd)
{
    struct frame_reply head;
    CHECK(recv(fd, &head, sizeof(head), MSG_WAITALL) == sizeof(head));
    CHECK(head.status == -EINPROGRESS);
}

/* played_answer - the next reply that is not -EINPROGRESS. */
struct frame_reply played_answer(int fd, uint8_t *bytes)
{
    struct frame_reply head;
    do
        CHECK(recv(fd, &head, sizeof(head), MSG_WAITALL) == sizeof(head));
    while (head.status == -EINPROGRESS);
    if (head.size)
        CHECK(recv(fd, bytes, head.size, MSG_WAITALL) == (ssize_t)head.size);
    return head;
}
