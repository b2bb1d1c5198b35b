/* peer_blocks.c - Blocks of a large File that one node sends another: the owner reads
 * the origin once, and Blocks that a node holds cost no origin. */
#include "nodes.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dataplane/api/engine.h"
#include "fault.h"
#include "shared/presence.h"

enum { PROGRAMS = 3, ASKED = 40 }; /* of each node; ranges of each */

static struct nodes nodes;
static atomic_int moves; /* of Extents, while the next read runs */

/* all_from_owner - the asker got them from the owner only, which read so much. */
static void all_from_owner(uint64_t asked, uint64_t read)
{
    nodes_settle(&nodes);
    CHECK(node_peer_bytes(&nodes.asker) == asked);
    CHECK(node_origin_bytes(&nodes.asker) == 0);
    CHECK(node_origin_bytes(&nodes.owner) == read);
}

static void begin(void)
{
    nodes_begin(&nodes, OWNER, NO_SOURCE);
    nodes_connect(&nodes);
}

/* ---- Blocks that the owner lacks ------------------------------------------------- */

static void the_owner_reads_what_is_asked_for(void)
{
    begin();
    node_read(&nodes.asker, 0, 5, 12);
    node_read(&nodes.asker, 0, 31, 2); /* of two Extents */
    node_read(&nodes.asker, 0, LARGE_BLOCKS - 1, 1);
    CHECK(node_present(&nodes.asker) == 15 && node_present(&nodes.owner) == 15);
    CHECK(node_served(&nodes.owner, ASKER).ranges == 6 && nodes_none_failed(&nodes));
    uint64_t bytes = 14 * BLOCK_BYTES + LARGE_BYTES % BLOCK_BYTES;
    all_from_owner(bytes, bytes);
    nodes_end(&nodes);
}

struct program {
    struct node *node;
    uint32_t slot;
};

static void *run_program(void *program)
{
    const struct program *p = program;
    uint32_t random = (p->slot + 1) * 2654435761u;
    for (int i = 0; i < ASKED; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t at = (random >> 8) % LARGE_BLOCKS, left = LARGE_BLOCKS - at;
        uint32_t n = 1 + (random >> 24) % 9;
        node_read(p->node, p->slot, at, n < left ? n : left);
    }
    node_read(p->node, p->slot, 0, LARGE_BLOCKS);
    return NULL;
}

static void run_programs(void)
{
    struct program programs[2 * PROGRAMS];
    pthread_t threads[2 * PROGRAMS];
    for (uint32_t i = 0; i < 2 * PROGRAMS; i++) {
        programs[i] = (struct program){i % 2 ? &nodes.owner : &nodes.asker, i};
        CHECK(pthread_create(&threads[i], NULL, run_program, &programs[i]) == 0);
    }
    for (uint32_t i = 0; i < 2 * PROGRAMS; i++)
        pthread_join(threads[i], NULL);
}

static void programs_of_both_nodes_cost_one_read(void)
{
    begin();
    run_programs();
    node_until_ready(&nodes.asker);
    node_until_ready(&nodes.owner);
    CHECK(board_replica_right(nodes.asker.board, 0));
    CHECK(board_replica_right(nodes.owner.board, 0));
    CHECK(nodes_none_failed(&nodes));
    all_from_owner(LARGE_BYTES, LARGE_BYTES);
    nodes_end(&nodes);
}

static void what_will_be_asked_for_is_read_ahead(void)
{
    static uint8_t bytes[CHUNK_BYTES];
    begin();
    int fd = played_ask(&nodes);
    played_send(fd, EXTENT_BLOCKS + 2, 2, 2, 0);
    CHECK(played_answer(fd, bytes).size == 2 * BLOCK_BYTES);
    poll(NULL, 0, 2 * 100); /* each tick of the server requests it again */
    CHECK(node_present(&nodes.owner) == 2);
    played_send(fd, 4, 4, 20, 0);
    CHECK(played_answer(fd, bytes).size == 4 * BLOCK_BYTES);
    node_until_present(&nodes.owner, 2 + 20);
    all_from_owner(0, (2 + 20) * BLOCK_BYTES);
    close(fd);
    nodes_end(&nodes);
}

/* ---- Blocks that it holds -------------------------------------------------------- */

static void have_some(void)
{
    node_read(&nodes.owner, 0, 5, 8);
}

static void have_all(void)
{
    node_read(&nodes.owner, 0, 0, LARGE_BLOCKS);
    node_until_ready(&nodes.owner);
}

/* `read` is the number of bytes that the owner reads for it: a File that has just
 * become ready may still show its Blocks. */
static void what_the_owner_has_costs_no_read(void (*have)(void), uint64_t read)
{
    begin();
    have();
    node_read(&nodes.asker, 0, 6, 7);
    CHECK(node_present(&nodes.asker) == 7 && nodes_none_failed(&nodes));
    CHECK(node_served(&nodes.owner, ASKER).ranges == 2);
    all_from_owner(7 * BLOCK_BYTES, read);
    nodes_end(&nodes);
}

static bool checksums_are_kept(void)
{
    const char *how = getenv("TEST_SEALED");
    return !how || strcmp(how, "only") != 0;
}

static void what_was_left_behind_is_adopted_for_a_peer(void)
{
    if (!checksums_are_kept())
        return;
    nodes_begin(&nodes, OWNER, NO_SOURCE);
    have_all();
    node_offer(&nodes.owner);
    nodes_connect(&nodes);
    node_read(&nodes.asker, 0, 6, 7);
    CHECK(node_ready(&nodes.owner) && nodes_none_failed(&nodes));
    all_from_owner(7 * BLOCK_BYTES, 0);
    nodes_end(&nodes);
}

/* ---- another order, another node, another configuration ------------------------------- */

static void replies_may_come_in_any_order(void)
{
    struct frame_request asked[4];
    const uint32_t count = 4 * FRAME_BLOCKS_MAX; /* one request of a program */
    nodes_begin(&nodes, PLAYED, NO_SOURCE);
    int fd = played_connect(&nodes);
    for (uint32_t first = 0; first < EXTENT_BLOCKS; first += count) {
        node_ask(&nodes.asker, 0, first, count);
        for (uint32_t i = 0; i < 4; i++) {
            asked[i] = played_take(fd);
            CHECK(asked[i].blocks == FRAME_BLOCKS_MAX && !asked[i].flags);
            CHECK(asked[i].wanted == count - i * FRAME_BLOCKS_MAX);
            CHECK(asked[i].first == first + i * FRAME_BLOCKS_MAX);
        }
        for (int i = 4; i-- > 0;) {
            struct blocks_reply a = played_right(&nodes, &asked[i]);
            played_give(fd, &a);
        }
        node_read(&nodes.asker, 0, first, count);
    }
    CHECK(nodes_none_failed(&nodes));
    all_from_owner(EXTENT_BYTES, 0);
    close(fd);
    nodes_end(&nodes);
}

/* tells_demand - the owner has noted how long a program has waited. */
static bool tells_demand(void)
{
    uint64_t pairs[2];
    return monarch_engine_demands(nodes.owner.board->engine, pairs, 1) > 0;
}

static void what_no_program_waits_for_is_no_demand(void)
{
    static uint8_t bytes[CHUNK_BYTES];
    begin();
    int fd = played_ask(&nodes);
    monarch_engine_set_background(nodes.owner.board->engine, 0, 0);
    played_send(fd, 8, 2, 2, FRAME_UNASKED);
    played_is_known(fd);
    played_send(fd, 40, 1, 1, 0); /* demand overtakes it */
    CHECK(played_answer(fd, bytes).first == 40 && node_present(&nodes.owner) == 1);
    while (!tells_demand())
        poll(NULL, 0, 1);
    monarch_engine_set_background(nodes.owner.board->engine, 1, 1);
    CHECK(played_answer(fd, bytes).size == 2 * BLOCK_BYTES);
    node_until_present(&nodes.owner, 3);
    nodes_until_counted(&nodes);
    CHECK(!tells_demand());
    close(fd);
    nodes_end(&nodes);
}

/* Fill of one node asked first, and is paused: programs of another do not wait. */
static void what_fill_has_asked_for_becomes_demand(void)
{
    static uint8_t bytes[CHUNK_BYTES];
    begin();
    int fd = played_ask(&nodes);
    monarch_engine_set_background(nodes.owner.board->engine, 0, 0);
    played_send(fd, 8, 4, 24, FRAME_UNASKED);
    played_is_known(fd);
    node_read(&nodes.asker, 0, 10, 2);
    CHECK(played_answer(fd, bytes).size == 4 * BLOCK_BYTES);
    close(fd);
    all_from_owner(2 * BLOCK_BYTES, 24 * BLOCK_BYTES);
    nodes_end(&nodes);
}

static const uint32_t files[] = {0};

/* fill_all - lets fill of the asker stage the File. */
static void fill_all(void)
{
    static const struct monarch_fill fill = {.to_fetch = files, .fetch_count = 1};
    monarch_engine_fill(nodes.asker.board->engine, &fill);
}

/* fill_reading - the same for a File that the asker reads from the origin in part. */
static void fill_reading(void)
{
    static const struct monarch_fill fill = {.to_read = files, .read_count = 1};
    monarch_engine_fill(nodes.asker.board->engine, &fill);
}

static void fill_asks_without_demand(void)
{
    nodes_begin(&nodes, PLAYED, OWNER);
    nodes_connect(&nodes);
    int fd = played_connect(&nodes);
    fill_all();
    struct frame_request asked = played_take(fd);
    CHECK(asked.flags == FRAME_UNASKED);
    close(fd);
    struct monarch_completion done = nodes_failed(&nodes);
    CHECK(done.status == -ECONNRESET && (done.kind & MONARCH_BACKGROUND));
    node_read(&nodes.asker, 0, 0, 1); /* fill has left it to requests */
    CHECK(node_origin_bytes(&nodes.asker) == 0);
    nodes_end(&nodes);
}

/* A program waits for Blocks that fill of its node requested: the peer is informed. */
static void what_own_fill_has_asked_for_is_told_as_wanted(void)
{
    nodes_begin(&nodes, PLAYED, OWNER);
    nodes_connect(&nodes);
    int fd = played_connect(&nodes);
    fill_all();
    struct frame_request asked = played_take(fd);
    CHECK(asked.flags == FRAME_UNASKED);
    node_ask(&nodes.asker, 0, 10, 2);
    do
        asked = played_take(fd);
    while (asked.flags == FRAME_UNASKED);
    CHECK(asked.flags == FRAME_WANTED && asked.first == 0);
    CHECK(asked.wanted == EXTENT_BLOCKS);
    close(fd);
    node_read(&nodes.asker, 0, 10, 2);
    nodes_end(&nodes);
}

static void what_own_fill_has_asked_for_becomes_demand(void)
{
    begin();
    monarch_engine_set_background(nodes.owner.board->engine, 0, 0);
    fill_all();
    while (!node_served(&nodes.owner, ASKER).requests)
        poll(NULL, 0, 1); /* it has sent the request */
    node_read(&nodes.asker, 0, 10, 2);
    monarch_engine_set_background(nodes.owner.board->engine, 1, 1);
    node_until_ready(&nodes.asker);
    nodes_end(&nodes);
}

/* A peer must first read Blocks for fill: programs get a place of the connection. */
static void programs_go_before_what_fill_waits_for(void)
{
    const struct monarch_receiver_options before = nodes.receives;
    nodes.receives.in_flight = 2;
    nodes_begin(&nodes, PLAYED, NO_SOURCE);
    nodes.receives = before;
    int fd = played_connect(&nodes);
    fill_all();
    struct frame_request asked = played_take(fd);
    CHECK(asked.flags == FRAME_UNASKED);
    node_ask(&nodes.asker, 0, 2 * EXTENT_BLOCKS, 1);
    for (; asked.flags == FRAME_UNASKED; asked = played_take(fd))
        played_refuse(fd, &asked, -EINPROGRESS);
    CHECK(asked.flags == 0 && asked.first == 2 * EXTENT_BLOCKS);
    struct blocks_reply a = played_right(&nodes, &asked);
    played_give(fd, &a);
    node_read(&nodes.asker, 0, 2 * EXTENT_BLOCKS, 1);
    close(fd);
    nodes_end(&nodes);
}

/* It is not given up, nor is the File lost that Python learns of late. */
static void fill_asks_again_for_what_a_peer_did_not_have(void)
{
    nodes_begin(&nodes, PLAYED, NO_SOURCE);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, 2 * EXTENT_BLOCKS, 1);
    struct frame_request asked = played_take(fd);
    struct blocks_reply a = played_right(&nodes, &asked);
    played_give(fd, &a);
    node_read(&nodes.asker, 0, 2 * EXTENT_BLOCKS, 1);
    fill_all();
    for (uint64_t until = clock_ns() + 2 * SECOND_NS; clock_ns() < until;) {
        asked = played_take(fd);
        CHECK(asked.flags == FRAME_UNASKED);
        played_refuse(fd, &asked, -EAGAIN);
    }
    CHECK(node_present(&nodes.asker) == 1);
    close(fd);
    nodes_end(&nodes);
}

/* read_first - the asker reads Extent 0 from the origin, the owner sends the others. */
static void read_first(void)
{
    struct monarch_table_row *rows = nodes.asker.rows;
    const struct monarch_plan plan = {.rows = rows, .own = ASKER, .peers = PEERS};
    rows[0].sources[0] = rows[0].sources[1] = NO_SOURCE;
    CHECK(monarch_table_follow(nodes.asker.table, &plan) == 0);
}

/* Programs wait for the origin, so no Transfer of fill may run: peers need none. */
static void what_peers_have_comes_beside_a_slow_origin(void (*fills)(void))
{
    begin();
    read_first();
    have_all();
    monarch_engine_set_background(nodes.asker.board->engine, 0, 0);
    fills();
    node_read(&nodes.asker, 0, 3, 1);
    node_until_present(&nodes.asker, 1 + LARGE_BLOCKS - EXTENT_BLOCKS);
    CHECK(node_peer_bytes(&nodes.asker) == LARGE_BYTES - EXTENT_BYTES);
    CHECK(node_origin_bytes(&nodes.asker) == BLOCK_BYTES && nodes_none_failed(&nodes));
    nodes_end(&nodes);
}

/* If a File is in pieces, another Extent may leave the Pool at any moment. */
static ssize_t read_while_it_moves(int fd, void *buffer, size_t n, off_t at)
{
    struct part *part = presence_part(nodes.owner.board->flags, 0);
    if (atomic_exchange(&moves, 0))
        atomic_fetch_add((_Atomic uint32_t *)&part->pieces, 1);
    return __real_pread(fd, buffer, n, at);
}

static void blocks_that_move_while_they_are_read_are_found_again(void)
{
    begin();
    node_read(&nodes.owner, 0, 8, 4);
    atomic_store(&moves, 1);
    fault_pread = read_while_it_moves;
    node_read(&nodes.asker, 0, 8, 4);
    fault_pread = NULL;
    CHECK(!atomic_load(&moves));
    CHECK(node_served(&nodes.owner, ASKER).refused == 0 && nodes_none_failed(&nodes));
    all_from_owner(4 * BLOCK_BYTES, 4 * BLOCK_BYTES);
    nodes_end(&nodes);
}

static void a_node_to_which_it_is_not_large_gives_blocks(bool ready)
{
    nodes_begin_large_for_asker(&nodes);
    nodes_connect(&nodes);
    if (ready) {
        board_ask(nodes.owner.board, 0, 1); /* File 0, as a whole */
        node_until_ready(&nodes.owner);
    }
    node_read(&nodes.asker, 0, 30, 4);
    CHECK(node_ready(&nodes.owner) && nodes_none_failed(&nodes));
    node_read(&nodes.asker, 0, LARGE_BLOCKS - 1, 1);
    all_from_owner(4 * BLOCK_BYTES + LARGE_BYTES % BLOCK_BYTES, LARGE_BYTES);
    nodes_end(&nodes);
}

static void a_node_to_which_it_is_not_large_gets_all(bool ready)
{
    nodes_begin_large_for_owner(&nodes);
    nodes_connect(&nodes);
    if (ready)
        have_all();
    board_ask(nodes.asker.board, 0, 1);
    node_until_ready(&nodes.asker);
    CHECK(nodes_none_failed(&nodes));
    all_from_owner(LARGE_BYTES, LARGE_BYTES);
    nodes_end(&nodes);
}

int main(void)
{
    the_owner_reads_what_is_asked_for();
    programs_of_both_nodes_cost_one_read();
    what_will_be_asked_for_is_read_ahead();
    what_the_owner_has_costs_no_read(have_some, 8 * BLOCK_BYTES);
    what_the_owner_has_costs_no_read(have_all, LARGE_BYTES);
    what_was_left_behind_is_adopted_for_a_peer();
    replies_may_come_in_any_order();
    what_no_program_waits_for_is_no_demand();
    what_fill_has_asked_for_becomes_demand();
    fill_asks_without_demand();
    what_own_fill_has_asked_for_is_told_as_wanted();
    what_own_fill_has_asked_for_becomes_demand();
    what_peers_have_comes_beside_a_slow_origin(fill_all);
    what_peers_have_comes_beside_a_slow_origin(fill_reading);
    programs_go_before_what_fill_waits_for();
    fill_asks_again_for_what_a_peer_did_not_have();
    blocks_that_move_while_they_are_read_are_found_again();
    a_node_to_which_it_is_not_large_gives_blocks(true);
    a_node_to_which_it_is_not_large_gives_blocks(false);
    a_node_to_which_it_is_not_large_gets_all(true);
    a_node_to_which_it_is_not_large_gets_all(false);
    return PASS;
}
