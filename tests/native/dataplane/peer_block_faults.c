/* peer_block_faults.c - a peer that sends wrong Blocks, or none, or too late, only
 * delays a program: the next source or the origin is read, and the bytes are right. */
#include "nodes.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "dataplane/api/engine.h"
#include "shared/presence.h"
#include "shared/xxh3.h"

enum { FIRST = 5, COUNT = 4, ACKNOWLEDGED = 25 };

static struct nodes nodes;

/* came_from - only these Blocks have come, from the owner or the asker's origin. */
static void came_from(bool owner)
{
    const uint64_t bytes = COUNT * BLOCK_BYTES;
    CHECK(node_present(&nodes.asker) == COUNT && nodes_none_failed(&nodes));
    CHECK(node_served(&nodes.owner, ASKER).ranges == owner);
    nodes_settle(&nodes);
    CHECK(node_origin_bytes(&nodes.asker) == (owner ? 0 : bytes));
    CHECK(node_peer_bytes(&nodes.asker) == (owner ? bytes : 0));
    nodes_end(&nodes);
}

static void begin(uint16_t next)
{
    nodes_begin(&nodes, PLAYED, next);
    nodes_connect(&nodes);
}

/* failed_by_played - the played peer has failed so, for all requested Blocks. */
static void failed_by_played(int status)
{
    struct monarch_completion done = nodes_failed(&nodes);
    CHECK(done.status == status && done.peer == PLAYED &&
          done.pages == COUNT * BLOCK_PAGES);
    CHECK(!(done.kind & MONARCH_BACKGROUND));
}

/* ---- wrong replies --------------------------------------------------------------- */

static void change_a_byte(struct blocks_reply *a)
{
    a->bytes[a->head.size / 2] ^= 1;
}

static void change_the_proof(struct blocks_reply *a)
{
    a->head.digest ^= nodes.receives.sealed ? 0 : 1;
    a->head.seal.tag[3] ^= 1;
}

/* change_a_byte_alike - its checksum is right, which anybody can compute. */
static void change_a_byte_alike(struct blocks_reply *a)
{
    change_a_byte(a);
    a->head.digest = xxh3(a->bytes, a->head.size, 0);
}

/* give_others - other Blocks, with their own seal. */
static void give_others(struct blocks_reply *a)
{
    const struct frame_request others = {.first = FIRST + COUNT, .blocks = COUNT};
    struct frame_reply head = a->head;
    free(a->bytes);
    *a = played_right(&nodes, &others);
    head.digest = a->head.digest;
    head.seal = a->head.seal;
    a->head = head;
}

static void name_others(struct blocks_reply *a)
{
    a->head.first++;
}

static void give_fewer(struct blocks_reply *a)
{
    a->head.size -= BLOCK_BYTES;
}

struct forgery {
    void (*change)(struct blocks_reply *a);
    int status;
    bool sealed; /* only a seal shows it */
};

static const struct forgery forgeries[] = {
    {change_a_byte, -EBADMSG, false},      {change_the_proof, -EBADMSG, false},
    {change_a_byte_alike, -EBADMSG, true}, {give_others, -EBADMSG, true},
    {name_others, -EPROTO, false},         {give_fewer, -EPROTO, false},
};

static uint64_t refused_as(int status)
{
    struct monarch_traffic all[PEERS];
    monarch_receiver_traffic(nodes.asker.receiver, all);
    return status == -EPROTO ? all[PLAYED].malformed : all[PLAYED].corrupt;
}

static void what_is_forged_is_refused(const struct forgery *f, uint16_t next)
{
    if (f->sealed && !getenv("TEST_SEALED"))
        return;
    begin(next);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct frame_request asked = played_take(fd);
    CHECK(asked.first == FIRST && asked.blocks == COUNT);
    struct blocks_reply a = played_right(&nodes, &asked);
    f->change(&a);
    played_give(fd, &a);
    failed_by_played(f->status);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    CHECK(refused_as(f->status) == 1);
    close(fd);
    came_from(next == OWNER);
}

static void what_is_right_before_a_forgery_stays(void)
{
    begin(OWNER);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, 2 * COUNT);
    struct frame_request asked[] = {played_take(fd), played_take(fd)};
    struct blocks_reply a = played_right(&nodes, &asked[1]);
    struct blocks_reply b = played_right(&nodes, &asked[0]);
    change_a_byte(&b);
    played_give(fd, &a);
    played_give(fd, &b);
    struct monarch_completion done = nodes_failed(&nodes);
    CHECK(done.status == -EBADMSG && done.pages == 2 * COUNT * BLOCK_PAGES);
    node_read(&nodes.asker, 0, FIRST, 2 * COUNT);
    CHECK(node_present(&nodes.owner) == COUNT); /* the others were there */
    nodes_settle(&nodes);
    CHECK(node_peer_bytes(&nodes.asker) == 2 * COUNT * BLOCK_BYTES);
    CHECK(node_origin_bytes(&nodes.asker) == 0);
    close(fd);
    nodes_end(&nodes);
}

/* ---- missing replies ------------------------------------------------------------- */

/* After a node that announces a delay, no other node that may be late is tried. */
static void who_gives_nothing_is_passed_over(int status)
{
    begin(OWNER);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct frame_request asked = played_take(fd);
    played_refuse(fd, &asked, status);
    failed_by_played(status);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    close(fd);
    came_from(status != -EAGAIN);
}

static void who_is_not_connected_is_passed_over(void)
{
    begin(OWNER);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    failed_by_played(-ENOTCONN);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    came_from(true);
}

static void who_may_not_be_asked_is_not(void)
{
    begin(OWNER);
    int fd = played_connect(&nodes);
    monarch_table_set_peer(nodes.asker.table, PLAYED, 0);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    close(fd);
    came_from(true);
}

static void who_closes_in_mid_reply_is_passed_over(uint16_t next)
{
    begin(next);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct frame_request asked = played_take(fd);
    struct blocks_reply a = played_right(&nodes, &asked);
    CHECK(write(fd, &a.head, sizeof(a.head)) == sizeof(a.head));
    CHECK(write(fd, a.bytes, a.head.size / 2) == (ssize_t)a.head.size / 2);
    free(a.bytes);
    close(fd);
    failed_by_played(-ECONNRESET);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    came_from(next == OWNER);
}

/* As a job ends, prefetched Blocks are not read by each node itself. */
static void what_no_program_waits_for_is_not_read_in_place_of_who_leaves(bool known)
{
    begin(NO_SOURCE);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct frame_request asked = played_take(fd);
    if (known)
        played_refuse(fd, &asked, -EINPROGRESS);
    monarch_engine_fill_pause(nodes.asker.board->engine, 1);
    close(fd);
    failed_by_played(-ECONNRESET);
    poll(NULL, 0, 300);
    CHECK(node_present(&nodes.asker) == 0);
    CHECK(node_origin_bytes(&nodes.asker) == 0);
    node_ask(&nodes.asker, 0, FIRST, COUNT); /* as for a program of another node */
    failed_by_played(-ENOTCONN);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    came_from(false);
}

static void be_impatient(void)
{
    nodes.receives = (struct monarch_receiver_options){.peers = PEERS,
                                                       .in_flight = 16,
                                                       .timeout_ms = 1500,
                                                       .react_ms = 1000,
                                                       .threads = 2};
}

/* Late replies are harmless, and the connection can be used again. */
static void who_is_late_is_not_waited_for(bool known)
{
    be_impatient();
    begin(OWNER);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct frame_request asked = played_take(fd);
    if (known)
        played_refuse(fd, &asked, -EINPROGRESS);
    failed_by_played(-ETIMEDOUT);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    struct blocks_reply a = played_right(&nodes, &asked);
    change_a_byte_alike(&a);
    played_give(fd, &a);
    node_ask(&nodes.asker, 0, FIRST + COUNT, COUNT);
    asked = played_take(fd);
    a = played_right(&nodes, &asked);
    played_give(fd, &a);
    node_read(&nodes.asker, 0, FIRST, 2 * COUNT);
    CHECK(nodes_none_failed(&nodes) && node_present(&nodes.owner) == 0);
    nodes_settle(&nodes);
    CHECK(node_peer_bytes(&nodes.asker) == COUNT * BLOCK_BYTES);
    CHECK(node_origin_bytes(&nodes.asker) == COUNT * BLOCK_BYTES);
    close(fd);
    nodes_end(&nodes);
}

static void who_comes_on_with_the_file_is_waited_for(void)
{
    be_impatient();
    begin(NO_SOURCE);
    int fd = played_connect(&nodes);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct frame_request asked = played_take(fd);
    for (uint32_t i = 1; i <= ACKNOWLEDGED; i++) {
        struct frame_reply head = reply_to(&asked);
        head.status = -EINPROGRESS;
        head.digest = i;
        put_reply(fd, &head, NULL);
        poll(NULL, 0, 100);
    }
    struct blocks_reply a = played_right(&nodes, &asked);
    played_give(fd, &a);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    CHECK(nodes_none_failed(&nodes));
    nodes_settle(&nodes);
    CHECK(node_peer_bytes(&nodes.asker) == COUNT * BLOCK_BYTES);
    close(fd);
    nodes_end(&nodes);
}

/* ---- damage at rest -------------------------------------------------------------- */

/* read_damaged - the owner detects it, and sends nothing. */
static void read_damaged(void)
{
    node_spoil(&nodes.owner, FIRST + 1);
    node_ask(&nodes.asker, 0, FIRST, COUNT);
    struct monarch_completion done = nodes_failed(&nodes);
    CHECK(done.status == -EIO && done.peer == OWNER &&
          done.pages == COUNT * BLOCK_PAGES);
    node_read(&nodes.asker, 0, FIRST, COUNT);
    CHECK(node_served(&nodes.owner, ASKER).refused == 1);
}

static void a_damaged_part_is_given_up(void)
{
    nodes_begin(&nodes, OWNER, NO_SOURCE);
    nodes_connect(&nodes);
    node_read(&nodes.owner, 0, FIRST, COUNT);
    read_damaged();
    CHECK(board_state(nodes.owner.board, 0) == STATE_WORD(REPLICA_ABSENT, 0, 0));
    CHECK(node_present(&nodes.owner) == 0 && board_names(nodes.owner.board, "") == 0);
    node_read(&nodes.asker, 0, FIRST + COUNT, 1); /* and staging starts again */
    CHECK(node_present(&nodes.owner) == 1);
    nodes_settle(&nodes);
    CHECK(node_origin_bytes(&nodes.asker) == COUNT * BLOCK_BYTES);
    nodes_end(&nodes);
}

/* Damage to a READY Replica is reported to Python, which will check it. */
static void a_damaged_replica_is_reported(bool adopted)
{
    uint32_t file;
    const char *how = getenv("TEST_SEALED");
    if (adopted && how && strcmp(how, "only") == 0)
        return; /* without checksums nothing is left behind */
    nodes_begin(&nodes, OWNER, NO_SOURCE);
    node_read(&nodes.owner, 0, 0, LARGE_BLOCKS);
    node_until_ready(&nodes.owner);
    if (adopted) {
        node_offer(&nodes.owner);
        board_ask(nodes.owner.board, 0, 1);
        node_until_ready(&nodes.owner);
    }
    nodes_connect(&nodes);
    read_damaged();
    CHECK(board_asked(nodes.owner.board, &file, 1, 1000 * PATIENCE_NS_MAX) == 1);
    CHECK(file == 0 && node_ready(&nodes.owner));
    nodes_settle(&nodes);
    CHECK(node_origin_bytes(&nodes.asker) == COUNT * BLOCK_BYTES);
    CHECK(node_peer_bytes(&nodes.asker) == 0);
    nodes_end(&nodes);
}

/* It has no checksums of Blocks, only of Extents. */
static void damage_is_found_where_the_file_is_not_large(void)
{
    uint32_t file;
    nodes_begin_large_for_asker(&nodes);
    nodes_connect(&nodes);
    board_ask(nodes.owner.board, 0, 1);
    node_until_ready(&nodes.owner);
    node_read(&nodes.asker, 0, LARGE_BLOCKS - 2, 2);
    read_damaged();
    CHECK(board_asked(nodes.owner.board, &file, 1, 1000 * PATIENCE_NS_MAX) == 1);
    nodes_settle(&nodes);
    CHECK(node_origin_bytes(&nodes.asker) == COUNT * BLOCK_BYTES);
    nodes_end(&nodes);
}

int main(void)
{
    for (size_t i = 0; i < sizeof(forgeries) / sizeof(forgeries[0]); i++) {
        what_is_forged_is_refused(&forgeries[i], OWNER);
        what_is_forged_is_refused(&forgeries[i], NO_SOURCE);
    }
    what_is_right_before_a_forgery_stays();
    who_gives_nothing_is_passed_over(-ENOENT);
    who_gives_nothing_is_passed_over(-EIO);
    who_gives_nothing_is_passed_over(-ESTALE);
    who_gives_nothing_is_passed_over(-EAGAIN);
    who_is_not_connected_is_passed_over();
    who_may_not_be_asked_is_not();
    who_closes_in_mid_reply_is_passed_over(OWNER);
    who_closes_in_mid_reply_is_passed_over(NO_SOURCE);
    what_no_program_waits_for_is_not_read_in_place_of_who_leaves(false);
    what_no_program_waits_for_is_not_read_in_place_of_who_leaves(true);
    who_is_late_is_not_waited_for(false);
    who_is_late_is_not_waited_for(true);
    who_comes_on_with_the_file_is_waited_for();
    a_damaged_part_is_given_up();
    a_damaged_replica_is_reported(false);
    a_damaged_replica_is_reported(true);
    damage_is_found_where_the_file_is_not_large();
    return PASS;
}
