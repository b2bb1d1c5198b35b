/* peer_faults.c - peers that die, lie or damage bytes, and ends in the middle of it. */
#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES = 40, SMALL = 110 << 10, LARGE = 2 * EXTENT_BYTES + 777 };

static struct pair pair;
static uint64_t sizes[FILES];

static void begin(void)
{
    for (int i = 0; i < FILES; i++)
        sizes[i] = i ? SMALL : LARGE;
    pair_new(&pair, FILES, sizes);
}

/* ---- a wire that damages one byte, or is cut after some -------------------------- */

struct wire {
    pthread_t thread;
    int asks, serves;         /* its own two ends */
    uint64_t flip_at, cut_at; /* bytes from the server */
    uint64_t passed;
};

static bool pass(struct wire *w, int from, int to, bool answers)
{
    uint8_t bytes[4096];
    ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    if (n <= 0)
        return false;
    for (ssize_t i = 0; answers && i < n; i++)
        bytes[i] ^= w->passed + (uint64_t)i == w->flip_at;
    w->passed += answers ? (uint64_t)n : 0;
    bool whole = send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
    return whole && w->passed < w->cut_at;
}

static void *carry(void *wire)
{
    struct wire *w = wire;
    struct pollfd fds[] = {{.fd = w->asks, .events = POLLIN},
                           {.fd = w->serves, .events = POLLIN}};
    bool open = true;
    while (open && poll(fds, 2, -1) > 0) {
        if (fds[0].revents)
            open = pass(w, w->asks, w->serves, false);
        if (open && fds[1].revents)
            open = pass(w, w->serves, w->asks, true);
    }
    close(w->asks);
    close(w->serves);
    return NULL;
}

static void connect_by_wire(struct wire *w, uint64_t flip_at, uint64_t cut_at)
{
    struct ends near = ends_local(), far = ends_local();
    *w = (struct wire){
        .asks = near.serves, .serves = far.asks, .flip_at = flip_at, .cut_at = cut_at};
    CHECK(pthread_create(&w->thread, NULL, carry, w) == 0);
    pair_connect(&pair, (struct ends){.asks = near.asks, .serves = far.serves});
}

static void a_flipped_byte_is_detected(void)
{
    const uint64_t head = sizeof(struct frame_reply);
    const uint64_t seal = offsetof(struct frame_reply, seal);
    const uint64_t ready = offsetof(struct frame_reply, ready);
    const uint64_t places[] = {0,           4,    8,        16,
                               24,          32,   ready,    head,
                               head + 5000, seal, head - 1, head + SMALL - 1};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        bool in_seal = places[i] >= seal && places[i] < head;
        bool in_digest = places[i] >= 32 && places[i] < 40;
        if (getenv("TEST_SEALED") ? in_digest : in_seal)
            continue; /* never checked */
        struct wire wire;
        begin();
        make_ready(pair.owner, 1);
        make_ready(pair.owner, 2);
        connect_by_wire(&wire, places[i], UINT64_MAX);
        int status = pair_fetch(&pair, 1).status;
        bool checksum = in_seal || in_digest || places[i] >= head;
        CHECK(status == (checksum ? -EBADMSG : -EPROTO));
        CHECK(nothing_published(pair.asker, 1));
        CHECK(pair_received(&pair).corrupt == (checksum ? 1 : 0));
        CHECK(pair_received(&pair).malformed == (checksum ? 0 : 1));
        status = pair_fetch(&pair, 2).status; /* damaged data does not close the link */
        CHECK(status == (checksum ? 0 : -ENOTCONN));
        monarch_receiver_free(pair.receiver);
        pair.receiver = NULL;
        pthread_join(wire.thread, NULL);
        pair_free(&pair);
    }
}

static void a_damaged_extent_fails_the_whole_file(void)
{
    struct wire wire;
    begin();
    make_ready(pair.owner, 0);
    connect_by_wire(&wire, EXTENT_BYTES + 2 * sizeof(struct frame_reply) + 9,
                    UINT64_MAX);
    CHECK(pair_fetch(&pair, 0).status == -EBADMSG && nothing_published(pair.asker, 0));
    CHECK(pair_fetch(&pair, 0).status == 0 && board_replica_right(pair.asker, 0));
    monarch_receiver_free(pair.receiver);
    pair.receiver = NULL;
    pthread_join(wire.thread, NULL);
    pair_free(&pair);
}

static void a_peer_that_dies_in_the_middle_fails_what_is_open(void)
{
    const uint64_t cuts[] = {1, 71, 72, 5000, EXTENT_BYTES, EXTENT_BYTES + 90};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        struct wire wire;
        begin();
        for (uint32_t file = 0; file < FILES; file++)
            make_ready(pair.owner, file);
        connect_by_wire(&wire, UINT64_MAX, cuts[i]);
        for (uint32_t file = 0; file < FILES; file++)
            pair_submit(&pair, file);
        for (uint32_t file = 0; file < FILES; file++) {
            int status = pair_wait(&pair).status; /* some are requested too late */
            CHECK(status == -ECONNRESET || (file && status == -ENOTCONN));
        }
        pthread_join(wire.thread, NULL);
        for (uint32_t file = 0; file < FILES; file++)
            CHECK(nothing_published(pair.asker, file));
        pair_connect(&pair, ends_tcp()); /* and another connection repairs everything */
        for (uint32_t file = 0; file < FILES; file++)
            CHECK(pair_fetch(&pair, file).status == 0);
        pair_free(&pair);
    }
}

static void one_connection_takes_the_place_of_another(void)
{
    begin();
    struct ends mute = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, mute.asks) == 0);
    pair_submit(&pair, 1);
    take_request(mute.serves);
    make_ready(pair.owner, 1);
    pair_connect(&pair, ends_local());
    CHECK(pair_wait(&pair).status == -ECONNRESET);
    CHECK(pair_fetch(&pair, 1).status == 0);
    pair_submit(&pair, 2);
    while (pair_served(&pair).requests < 2)
        poll(NULL, 0, 1);
    CHECK(monarch_receiver_disconnect(pair.receiver, OWNER) == 0);
    CHECK(pair_wait(&pair).status == -ECANCELED);
    CHECK(pair_fetch(&pair, 3).status == -ENOTCONN);
    pair_until_closed(&pair);
    close(mute.serves);
    pair_free(&pair);
}

static void answers_to_nothing_end_the_connection(void)
{
    for (int fault = 0; fault < 6; fault++) {
        begin();
        struct ends ends = ends_local();
        CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
        pair_submit(&pair, 1);
        struct frame_request f = take_request(ends.serves);
        struct frame_reply head = reply_to(&f);
        head.size = fault == 0 ? SMALL - 1 : fault == 1 ? UINT64_MAX : SMALL;
        head.id += fault == 2;
        head.status = fault == 3 ? -EIO : fault == 4 ? 5 : 0;
        head.file += fault == 5;
        CHECK(send(ends.serves, &head, sizeof(head), 0) == sizeof(head));
        CHECK(pair_wait(&pair).status == -EPROTO && nothing_published(pair.asker, 1));
        CHECK(recv(ends.serves, &head, sizeof(head), 0) == 0);
        close(ends.serves);
        pair_free(&pair);
    }
}

static void extents_out_of_order_end_the_connection(void)
{
    begin();
    struct ends ends = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    pair_submit(&pair, 0);
    CHECK(take_request(ends.serves).first == 0);
    struct frame_request f = take_request(ends.serves);
    struct frame_reply head = reply_to(&f);
    head.size = EXTENT_BYTES;
    CHECK(f.first == EXTENT_BLOCKS);
    CHECK(send(ends.serves, &head, sizeof(head), 0) == sizeof(head));
    CHECK(pair_wait(&pair).status == -EPROTO);
    close(ends.serves);
    pair_free(&pair);
}

static void a_tier_that_is_gone_fails_the_file_alone(void)
{
    char moved[512];
    begin();
    make_ready(pair.owner, 1);
    make_ready(pair.owner, 2);
    pair_connect(&pair, ends_local());
    snprintf(moved, sizeof(moved), "%s/moved", pair.asker->base);
    CHECK(rename(pair.asker->tier, moved) == 0 && rmdir(moved) == 0);
    struct monarch_completion a = pair_fetch(&pair, 1);
    CHECK(a.status == -ENOENT);
    CHECK(a.step == MONARCH_STEP_CREATE || a.step == MONARCH_STEP_PUBLISH);
    CHECK(pair_received(&pair).connections == 1);
    CHECK(mkdir(pair.asker->tier, 0700) == 0);
    pair_free(&pair);
}

static void a_file_of_that_name_is_not_replaced(void)
{
    begin();
    make_ready(pair.owner, 1);
    make_ready(pair.asker, 1);
    pair_connect(&pair, ends_local());
    struct monarch_completion a = pair_fetch(&pair, 1);
    CHECK(a.status == -EEXIST && a.step == MONARCH_STEP_PUBLISH);
    CHECK(board_replica_right(pair.asker, 1));
    pair_free(&pair);
}

static void a_replica_that_was_cut_ends_the_connection(void)
{
    char path[512];
    begin();
    make_ready(pair.owner, 1);
    pair_connect(&pair, ends_local());
    CHECK(pair_fetch(&pair, 1).status == 0); /* its descriptor is kept */
    board_replica_path(pair.owner, 1, path);
    CHECK(chmod(path, 0600) == 0 && truncate(path, 1000) == 0);
    unpublish(pair.asker, 1);
    CHECK(pair_fetch(&pair, 1).status == -ECONNRESET);
    CHECK(nothing_published(pair.asker, 1));
    pair_free(&pair);
}

static void a_server_may_stop_while_it_sends(void)
{
    begin();
    for (uint32_t file = 0; file < FILES; file++)
        make_ready(pair.owner, file);
    struct ends ends = ends_local();
    CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
    for (uint32_t extent = 0; extent < 3; extent++) {
        struct frame_request f = ask_extent(pair.owner, extent, 0, extent);
        CHECK(send(ends.asks, &f, sizeof(f), 0) == sizeof(f));
    }
    struct frame_reply head;
    CHECK(recv(ends.asks, &head, sizeof(head), MSG_WAITALL) == sizeof(head));
    CHECK(head.size == EXTENT_BYTES); /* far more than the socket holds */
    monarch_server_free(pair.server);
    pair.server = NULL;
    close(ends.asks);
    pair_free(&pair);
}

static void a_receiver_may_stop_while_it_receives(void)
{
    begin();
    for (uint32_t file = 0; file < FILES; file++)
        make_ready(pair.owner, file);
    for (uint32_t round = 0; round < 20; round++) {
        pair_connect(&pair, ends_tcp());
        for (uint32_t file = 0; file < FILES; file++)
            pair_submit(&pair, file);
        while (pair_received(&pair).bytes < round * 500000ull)
            poll(NULL, 0, 0);
        monarch_receiver_free(pair.receiver);
        pair_until_closed(&pair);
        for (uint32_t file = 0; file < FILES; file++) {
            char path[512];
            bool ready = STATE_OF(board_state(pair.asker, file)) == REPLICA_READY;
            board_replica_path(pair.asker, file, path);
            CHECK(ready ? board_replica_right(pair.asker, file)
                        : access(path, F_OK) != 0);
            unpublish(pair.asker, file);
        }
        CHECK(monarch_receiver_new(pair.asker->engine, &pair.receives,
                                   &pair.receiver) == 0);
    }
    pair_free(&pair);
}

static void evicted_replicas_are_not_held_open(bool come_back)
{
    begin();
    make_ready(pair.owner, 1);
    pair_connect(&pair, ends_local());
    CHECK(pair_fetch(&pair, 1).status == 0);
    unsigned held = descriptors_open();
    unpublish(pair.owner, 1);
    if (come_back) /* the state is the same, the file another */
        make_ready(pair.owner, 1);
    uint64_t began = clock_ns();
    while (descriptors_open() == held)
        CHECK(clock_ns() - began < PATIENCE_NS_MAX * SECOND_NS);
    unpublish(pair.asker, 1);
    CHECK(!come_back || pair_fetch(&pair, 1).status == 0);
    pair_free(&pair);
}

int main(void)
{
    unsigned before = descriptors_open();
    a_flipped_byte_is_detected();
    a_damaged_extent_fails_the_whole_file();
    a_peer_that_dies_in_the_middle_fails_what_is_open();
    one_connection_takes_the_place_of_another();
    answers_to_nothing_end_the_connection();
    extents_out_of_order_end_the_connection();
    a_tier_that_is_gone_fails_the_file_alone();
    a_file_of_that_name_is_not_replaced();
    a_replica_that_was_cut_ends_the_connection();
    a_server_may_stop_while_it_sends();
    a_receiver_may_stop_while_it_receives();
    evicted_replicas_are_not_held_open(false);
    evicted_replicas_are_not_held_open(true);
    CHECK(descriptors_open() == before);
    return PASS;
}
