/* peer_fetches.c - Files pass from node to node whole, right, and staged once. */
#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pair pair;

static const uint64_t sizes[] = {
    0,
    1,
    110 << 10,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    EXTENT_BYTES - 1,
    EXTENT_BYTES,
    EXTENT_BYTES + 1,
    5ull * EXTENT_BYTES + 12345,
    4 << 20,
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), MANY = 300 };

static void each_size_arrives_right(struct ends ends)
{
    uint64_t bytes = 0;
    pair_new(&pair, SIZES, sizes);
    for (uint32_t i = 0; i < SIZES; i++)
        make_ready(pair.owner, i);
    pair_connect(&pair, ends);
    for (uint32_t i = 0; i < SIZES; i++) {
        struct monarch_completion a = pair_fetch(&pair, i);
        CHECK(a.status == 0 && a.file == i && a.peer == OWNER && a.bytes == sizes[i]);
        CHECK(board_state(pair.asker, i) == STATE_WORD(REPLICA_READY, 0, SOURCE_PEER));
        CHECK(board_replica_right(pair.asker, i));
        bytes += sizes[i];
    }
    uint64_t last = pair.asker->digest_first[SIZES - 1];
    CHECK(memcmp(pair.asker->digests, pair.owner->digests, (last + 1) * 8) == 0);
    pair_until_served(&pair, bytes);
    CHECK(pair_served(&pair).malformed == 0);
    CHECK(pair_received(&pair).replies == pair_served(&pair).replies);
    pair_free(&pair);
}

static void cold_files_are_staged_by_their_owner(void)
{
    pair_new(&pair, SIZES, sizes);
    pair_start_agent(&pair);
    pair_connect(&pair, ends_local());
    for (uint32_t i = 0; i < SIZES; i++)
        pair_submit(&pair, i);
    for (uint32_t i = 0; i < SIZES; i++)
        CHECK(pair_wait(&pair).status == 0);
    for (uint32_t i = 0; i < SIZES; i++)
        CHECK(board_replica_right(pair.asker, i) &&
              STATE_SOURCE(board_state(pair.asker, i)) == SOURCE_NONE);
    CHECK(atomic_load(&pair.staged) == SIZES);
    pair_free(&pair);
}

static void two_who_ask_for_cold_files_cause_one_staging(void)
{
    static uint64_t equal[MANY];
    struct pair other = {0};
    for (int i = 0; i < MANY; i++)
        equal[i] = 5000;
    pair_new(&pair, MANY, equal);
    pair_new(&other, MANY, equal);
    pair_start_agent(&pair);
    pair_connect(&pair, ends_local());
    struct ends ends = ends_tcp();
    CHECK(monarch_server_adopt(pair.server, 2, ends.serves) == 0);
    CHECK(monarch_receiver_connect(other.receiver, OWNER, ends.asks) == 0);
    for (uint32_t i = 0; i < MANY; i++) {
        pair_submit(&pair, i);
        pair_submit(&other, i);
    }
    for (uint32_t i = 0; i < MANY; i++)
        CHECK(pair_wait(&pair).status == 0 && pair_wait(&other).status == 0);
    for (uint32_t i = 0; i < MANY; i++)
        CHECK(board_replica_right(pair.asker, i) &&
              board_replica_right(other.asker, i));
    CHECK(atomic_load(&pair.staged) == MANY);
    pair_free(&other);
    pair_free(&pair);
}

static void several_threads_fetch_from_several_peers(void)
{
    static uint64_t equal[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        equal[i] = i % 50 ? 5000 : EXTENT_BYTES + 1;
    pair.receives = (struct monarch_receiver_options){.peers = PEERS,
                                                      .in_flight = 4,
                                                      .timeout_ms = 60000,
                                                      .react_ms = 60000,
                                                      .threads = 3};
    pair_new(&pair, MANY, equal);
    for (uint32_t i = 0; i < MANY; i++)
        make_ready(pair.owner, i);
    for (uint32_t peer = 0; peer < PEERS; peer++) { /* all are the same node */
        struct ends ends = peer % 2 ? ends_tcp() : ends_local();
        CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
        CHECK(monarch_receiver_connect(pair.receiver, peer, ends.asks) == 0);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        const struct monarch_order order = {.file = i, .peer = i % PEERS};
        board_set_state(pair.asker, i, STATE_WORD(REPLICA_STAGING, 0, 0));
        CHECK(monarch_receiver_submit(pair.receiver, &order, 1) == 1);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        struct monarch_completion a = pair_wait(&pair);
        CHECK(a.status == 0 && a.peer == a.file % PEERS);
    }
    for (uint32_t i = 0; i < MANY; i++)
        CHECK(board_replica_right(pair.asker, i));
    pair_free(&pair);
}

static void bbr_is_replaced_where_that_is_allowed(void)
{
    char name[16] = "";
    socklen_t n = sizeof(name) - 1;
    int one = 0;
    socklen_t m = sizeof(one);
    struct ends ends = ends_tcp();
    int seen = dup(ends.asks);
    pair_new(&pair, 1, sizes);
    pair_connect(&pair, ends);
    CHECK(getsockopt(seen, IPPROTO_TCP, TCP_CONGESTION, name, &n) == 0);
    CHECK(getsockopt(seen, IPPROTO_TCP, TCP_NODELAY, &one, &m) == 0 && one);
    if (geteuid() == 0)
        CHECK(strncmp(name, "bbr", 3) != 0);
    pair_free(&pair);
    close(seen);
}

static void wrong_numbers_and_sockets_are_refused(void)
{
    pair_new(&pair, 1, sizes);
    struct ends ends = ends_local();
    int datagram = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(monarch_server_adopt(pair.server, PEERS, ends.serves) == -EINVAL);
    CHECK(monarch_receiver_connect(pair.receiver, PEERS, ends.asks) == -EINVAL);
    CHECK(monarch_server_adopt(pair.server, 0, datagram) == -EPROTOTYPE);
    CHECK(monarch_server_adopt(pair.server, 0, -1) == -EBADF);
    const struct monarch_order orders[] = {{.file = 0, .peer = PEERS},
                                           {.file = 0, .peer = OWNER}};
    CHECK(monarch_receiver_submit(pair.receiver, orders, 2) == 2);
    CHECK(pair_wait(&pair).status == -ENOTCONN);
    CHECK(pair_wait(&pair).status == -ENOTCONN);
    pair_connect(&pair, ends);
    const struct monarch_order bad[] = {{.file = 7, .peer = OWNER},
                                        {.file = 0, .tier = 4, .peer = OWNER}};
    CHECK(monarch_receiver_submit(pair.receiver, bad, 2) == 2);
    CHECK(pair_wait(&pair).status == -EINVAL && pair_wait(&pair).status == -EINVAL);
    close(datagram);
    pair_free(&pair);
}

static void connections_are_bounded(void)
{
    pair.serves = (struct monarch_server_options){
        .peers = PEERS, .connections = 2, .park_ms = 1000, .stall_ms = 1000};
    pair_new(&pair, 1, sizes);
    struct ends ends[3];
    for (int i = 0; i < 3; i++) {
        ends[i] = ends_local();
        int rc = monarch_server_adopt(pair.server, 1, ends[i].serves);
        CHECK(rc == (i < 2 ? 0 : -EMFILE));
    }
    CHECK(monarch_server_drop(pair.server, 1) == 0);
    while (monarch_server_adopt(pair.server, 1, ends[2].serves))
        poll(NULL, 0, 1);
    for (int i = 0; i < 3; i++)
        close(ends[i].asks);
    pair_free(&pair);
}

int main(void)
{
    unsigned before = descriptors_open();
    each_size_arrives_right(ends_local());
    each_size_arrives_right(ends_tcp());
    cold_files_are_staged_by_their_owner();
    two_who_ask_for_cold_files_cause_one_staging();
    several_threads_fetch_from_several_peers();
    bbr_is_replaced_where_that_is_allowed();
    wrong_numbers_and_sockets_are_refused();
    connections_are_bounded();
    CHECK(descriptors_open() == before);
    return PASS;
}
