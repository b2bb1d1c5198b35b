/* peer_waits.c - requests that cannot be answered at once, and their maximum wait. */
#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES = 200, SIZE = 3000 };

static struct pair pair;
static uint64_t sizes[FILES];
static uint32_t react_ms = 60000; /* of the next pair */

static void begin(uint32_t park_ms, uint32_t timeout_ms)
{
    pair.serves = (struct monarch_server_options){
        .peers = PEERS, .connections = 8, .park_ms = park_ms, .stall_ms = 200};
    pair.receives = (struct monarch_receiver_options){.peers = PEERS,
                                                      .in_flight = 4,
                                                      .timeout_ms = timeout_ms,
                                                      .react_ms = react_ms,
                                                      .threads = 1};
    pair_new(&pair, FILES, sizes);
}

/* wait_asked - waits until the owner's agent gets a request for this File. */
static void wait_asked(uint32_t file)
{
    uint32_t got = NONE32;
    while (got != file)
        CHECK(board_asked(pair.owner, &got, 1, 1000 * PATIENCE_NS_MAX) == 1);
}

static void state(uint32_t file, uint32_t word)
{
    board_set_state(pair.owner, file, word);
}

static void a_parked_request_is_answered_when_ready_comes(void)
{
    begin(60000, 60000);
    pair_connect(&pair, ends_local());
    pair_submit(&pair, 7);
    wait_asked(7);
    wait_asked(7); /* like a program's, it is repeated until something is done */
    CHECK(pair_served(&pair).replies == 0);
    make_ready(pair.owner, 7);
    CHECK(pair_wait(&pair).status == 0 && board_replica_right(pair.asker, 7));
    CHECK(board_state(pair.asker, 7) == STATE_WORD(REPLICA_READY, 0, SOURCE_NONE));
    pair_free(&pair);
}

static void others_overtake_a_parked_request(void)
{
    begin(60000, 60000);
    make_ready(pair.owner, 8);
    pair_connect(&pair, ends_local());
    pair_submit(&pair, 7);
    pair_submit(&pair, 8);
    struct monarch_completion first = pair_wait(&pair);
    CHECK(first.status == 0 && first.file == 8);
    make_ready(pair.owner, 7);
    CHECK(pair_wait(&pair).file == 7);
    pair_free(&pair);
}

static void what_will_not_come_is_refused(void)
{
    begin(60000, 60000);
    pair_connect(&pair, ends_local());
    state(1, STATE_WORD(REPLICA_ABSENT, 0, REASON_NO_ROOM));
    struct monarch_completion a = pair_fetch(&pair, 1);
    CHECK(a.status == -ENOENT && a.step == MONARCH_STEP_READ && a.bytes == 0);
    state(2, STATE_WORD(REPLICA_STAGING, 0, 0));
    pair_submit(&pair, 2);
    pair_submit(&pair, 3); /* reaches Python, so that 2 has been parked by then */
    wait_asked(3);
    state(2, STATE_WORD(REPLICA_ABSENT, 0, REASON_ERROR));
    a = pair_wait(&pair);
    CHECK(a.file == 2 && a.status == -ENOENT);
    make_ready(pair.owner, 3);
    CHECK(pair_wait(&pair).status == 0);
    make_ready(pair.owner, 4);
    pair.owner->flags->written[4] = 1;
    CHECK(pair_fetch(&pair, 4).status == -ENOENT);
    CHECK(nothing_published(pair.asker, 4) && pair_served(&pair).refused == 3);
    pair_free(&pair);
}

static void a_file_that_is_written_here_is_not_published(void)
{
    begin(60000, 60000);
    make_ready(pair.owner, 1);
    pair_connect(&pair, ends_local());
    pair.asker->flags->written[1] = 1;
    CHECK(pair_fetch(&pair, 1).status == -ESTALE && nothing_published(pair.asker, 1));
    pair_free(&pair);
}

static void what_comes_too_late_is_said_to_be_late(void)
{
    begin(150, 60000);
    pair_connect(&pair, ends_local());
    struct monarch_completion a = pair_fetch(&pair, 5);
    CHECK(a.status == -EAGAIN && a.ns >= 150 * (SECOND_NS / 1000));
    CHECK(pair_served(&pair).late == 1);
    make_ready(pair.owner, 5);
    CHECK(pair_fetch(&pair, 5).status == 0);
    pair_free(&pair);
}

static void a_lost_replica_is_reported_to_the_agent(void)
{
    char path[512];
    begin(60000, 60000);
    make_ready(pair.owner, 6);
    board_replica_path(pair.owner, 6, path);
    CHECK(unlink(path) == 0);
    pair_connect(&pair, ends_local());
    CHECK(pair_fetch(&pair, 6).status == -EIO);
    wait_asked(6);
    pair_free(&pair);
}

static void another_catalog_is_refused(void)
{
    begin(60000, 60000);
    make_ready(pair.owner, 1);
    pair.owner->catalog->digest = 12;
    pair_connect(&pair, ends_local());
    CHECK(pair_fetch(&pair, 1).status == -ESTALE);
    CHECK(pair_served(&pair).malformed == 0 && pair_served(&pair).connections == 1);
    pair_free(&pair);
}

static void a_silent_peer_costs_the_time_out(void)
{
    begin(60000, 150);
    struct ends ends = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    uint64_t began = clock_ns();
    for (uint32_t i = 0; i < 10; i++)
        pair_submit(&pair, i); /* more than the maximum in flight */
    for (uint32_t i = 0; i < 10; i++)
        CHECK(pair_wait(&pair).status == -ETIMEDOUT);
    uint64_t took = clock_ns() - began;
    CHECK(took >= 150 * (SECOND_NS / 1000) && took < 30 * SECOND_NS);
    CHECK(pair_received(&pair).late == 10 && pair_received(&pair).connections == 1);
    close(ends.serves);
    pair_free(&pair);
}

static void a_reply_that_stops_in_the_middle_costs_the_time_out(void)
{
    begin(60000, 150);
    char bytes[SIZE] = {0};
    struct ends ends = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    pair_submit(&pair, 1);
    struct frame_request f = take_request(ends.serves);
    struct frame_reply head = reply_to(&f);
    head.size = SIZE;
    CHECK(send(ends.serves, &head, sizeof(head), 0) == sizeof(head));
    CHECK(send(ends.serves, bytes, SIZE / 2, 0) == SIZE / 2);
    CHECK(pair_wait(&pair).status == -ETIMEDOUT && nothing_published(pair.asker, 1));
    CHECK(send(ends.serves, bytes, SIZE - SIZE / 2, 0) == SIZE - SIZE / 2);
    pair_submit(&pair, 2); /* the link is as good as before */
    f = take_request(ends.serves);
    head = reply_to(&f);
    head.status = -ENOENT;
    put_reply(ends.serves, &head, NULL);
    CHECK(pair_wait(&pair).status == -ENOENT && nothing_published(pair.asker, 1));
    close(ends.serves);
    pair_free(&pair);
}

static void a_frozen_peer_costs_the_time_to_react(void)
{
    react_ms = 150;
    begin(60000, 60000);
    struct ends ends = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    uint64_t began = clock_ns();
    for (uint32_t i = 0; i < 10; i++)
        pair_submit(&pair, i); /* more than the maximum in flight */
    for (uint32_t i = 0; i < 10; i++) {
        struct monarch_completion a = pair_wait(&pair);
        CHECK(a.status == -ETIMEDOUT && a.step == MONARCH_STEP_READ);
    }
    uint64_t took = clock_ns() - began;
    CHECK(took >= 150 * (SECOND_NS / 1000) && took < 30 * SECOND_NS);
    struct frame_request f = take_request(ends.serves); /* it continues */
    struct frame_reply head = reply_to(&f);
    head.status = -ENOENT;
    put_reply(ends.serves, &head, NULL);
    pair_submit(&pair, 11);
    while (f.file != 11)
        f = take_request(ends.serves);
    head = reply_to(&f);
    head.status = -ENOENT;
    put_reply(ends.serves, &head, NULL);
    CHECK(pair_wait(&pair).status == -ENOENT);
    close(ends.serves);
    pair_free(&pair);
    react_ms = 60000;
}

static void who_is_told_to_wait_waits(void)
{
    react_ms = 150;
    begin(60000, 60000);
    pair_connect(&pair, ends_local());
    for (uint32_t i = 0; i < 10; i++)
        pair_submit(&pair, i); /* some of them wait on this side */
    struct pollfd fd = {.fd = monarch_receiver_event_fd(pair.receiver),
                        .events = POLLIN};
    CHECK(poll(&fd, 1, 1500) == 0); /* longer than the maximum silence of a peer */
    for (uint32_t i = 0; i < 10; i++)
        make_ready(pair.owner, i);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(pair_wait(&pair).status == 0);
    CHECK(pair_received(&pair).late == 0);
    pair_free(&pair);
    react_ms = 60000;
}

static void a_peer_that_freezes_while_others_wait_is_noticed(void)
{
    react_ms = 150;
    begin(60000, 60000);
    struct ends ends = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    pair_submit(&pair, 1);
    struct frame_request f = take_request(ends.serves);
    struct frame_reply head = reply_to(&f);
    head.status = -EINPROGRESS;
    uint64_t began = clock_ns();
    put_reply(ends.serves, &head, NULL);
    CHECK(pair_wait(&pair).status == -ETIMEDOUT);
    uint64_t took = clock_ns() - began;
    CHECK(took >= SECOND_NS && took < 30 * SECOND_NS);
    close(ends.serves);
    pair_free(&pair);
    react_ms = 60000;
}

static void files_in_flight_are_bounded(void)
{
    begin(60000, 60000);
    struct ends ends = ends_local();
    struct pollfd more = {.fd = ends.serves, .events = POLLIN};
    uint32_t open = 0, answered = 0;
    struct frame_request oldest[64];
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    for (uint32_t i = 0; i < 50; i++)
        pair_submit(&pair, i);
    while (answered < 50) {
        while (open < 4 && answered + open < 50)
            oldest[open++] = take_request(ends.serves);
        CHECK(poll(&more, 1, answered ? 0 : 50) == 0); /* no more than 4 */
        struct frame_reply head = reply_to(&oldest[--open]);
        head.status = -ENOENT;
        put_reply(ends.serves, &head, NULL);
        CHECK(pair_wait(&pair).status == -ENOENT);
        answered++;
    }
    close(ends.serves);
    pair_free(&pair);
}

static void orders_are_bounded(void)
{
    static struct monarch_order orders[5000];
    begin(60000, 60000);
    CHECK(monarch_receiver_submit(pair.receiver, orders, 5000) == 4096);
    for (int i = 0; i < 4096; i++)
        CHECK(pair_wait(&pair).status == -ENOTCONN);
    CHECK(monarch_receiver_submit(pair.receiver, orders, 5000) == 4096);
    pair_free(&pair);
}

static void a_peer_that_takes_nothing_is_let_go(void)
{
    sizes[0] = 3 * EXTENT_BYTES;
    begin(60000, 60000);
    make_ready(pair.owner, 0);
    struct ends ends = ends_local();
    CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
    struct frame_request f = ask_extent(pair.owner, 9, 0, 0);
    CHECK(send(ends.asks, &f, sizeof(f), 0) == sizeof(f));
    while (pair_served(&pair).requests == 0)
        poll(NULL, 0, 1);
    pair_until_closed(&pair);
    CHECK(pair_served(&pair).lost == 1 && pair_served(&pair).bytes < EXTENT_BYTES);
    close(ends.asks);
    pair_free(&pair);
    sizes[0] = SIZE;
}

static void more_requests_than_the_server_takes_stay_in_the_socket(void)
{
    enum { ASKED = 150 };
    begin(60000, 60000);
    struct ends ends = ends_local();
    CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
    for (uint32_t i = 0; i < ASKED; i++) {
        struct frame_request f = ask_extent(pair.owner, i, i, 0);
        CHECK(send(ends.asks, &f, sizeof(f), 0) == sizeof(f));
    }
    wait_asked(63);
    CHECK(pair_served(&pair).requests == 64);
    for (uint32_t i = 0; i < ASKED; i++)
        state(i, STATE_WORD(REPLICA_ABSENT, 0, REASON_NO_ROOM));
    for (uint32_t i = 0; i < ASKED; i++) {
        struct frame_reply head = {.status = -EINPROGRESS};
        while (head.status == -EINPROGRESS)
            CHECK(recv(ends.asks, &head, sizeof(head), MSG_WAITALL) == sizeof(head));
        CHECK(head.status == -ENOENT && head.id < ASKED);
    }
    CHECK(pair_served(&pair).requests == ASKED);
    close(ends.asks);
    pair_free(&pair);
}

int main(void)
{
    for (int i = 0; i < FILES; i++)
        sizes[i] = SIZE;
    unsigned before = descriptors_open();
    a_parked_request_is_answered_when_ready_comes();
    others_overtake_a_parked_request();
    what_will_not_come_is_refused();
    a_file_that_is_written_here_is_not_published();
    what_comes_too_late_is_said_to_be_late();
    a_lost_replica_is_reported_to_the_agent();
    another_catalog_is_refused();
    a_silent_peer_costs_the_time_out();
    a_reply_that_stops_in_the_middle_costs_the_time_out();
    a_frozen_peer_costs_the_time_to_react();
    who_is_told_to_wait_waits();
    a_peer_that_freezes_while_others_wait_is_noticed();
    files_in_flight_are_bounded();
    orders_are_bounded();
    a_peer_that_takes_nothing_is_let_go();
    more_requests_than_the_server_takes_stay_in_the_socket();
    CHECK(descriptors_open() == before);
    return PASS;
}
