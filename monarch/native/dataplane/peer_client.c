/* peer_client.c - the threads that fetch Files from peers, and how Python drives them. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/peer_client.h"
#include "dataplane/simd.h"
#include "dataplane/traffic.h"

enum { HANDS_MAX = 1024 };

struct hand { /* fd -1: the connection to the peer is to be closed */
    int fd;
    uint32_t peer;
};

/* settle - makes event_fd readable exactly while there is something to collect. Programs
 * have been woken already: Python hears of successes in batches. */
static void settle(struct receiver *r, bool all)
{
    uint64_t n = 1;
    bool waiting = r->done.count > 0 &&
                   (all || r->failed || r->done.count >= DONE_BATCH);
    if (waiting && !r->signalled)
        r->signalled = write(r->event_fd, &n, sizeof(n)) == sizeof(n);
    else if (!r->done.count && r->signalled)
        r->signalled = read(r->event_fd, &n, sizeof(n)) != sizeof(n);
}

/* receive_done - an order has ended. */
void receive_done(struct receiver *r, const struct monarch_arrival *arrival)
{
    struct lane *lane = lane_of(r, arrival->peer);
    lane->running--;
    pthread_mutex_lock(&r->lock);
    r->failed = r->failed || arrival->status;
    ring_push(&r->done, arrival); /* has room for all that are outstanding */
    settle(r, lane->running == 0);
    pthread_mutex_unlock(&r->lock);
}

static void lose(struct receiver *r, uint32_t peer, int status)
{
    struct link *l = r->links[peer];
    if (!l)
        return;
    r->links[peer] = NULL;
    traffic_add(&r->traffic[peer].connections, UINT64_MAX); /* one less */
    traffic_add(&r->traffic[peer].lost, 1);
    traffic_add(&r->traffic[peer].malformed, status == -EPROTO);
    link_end(r, l, status);
}

static void carry_on(struct receiver *r, struct link *l, uint32_t events)
{
    bool readable = events & (EPOLLIN | EPOLLHUP | EPOLLERR);
    int rc = readable ? link_read(r, l) : 0;
    rc = rc ? rc : link_pump(r, l, clock_ns());
    if (rc) {
        lose(r, l->peer, rc);
        return;
    }
    uint32_t wanted = EPOLLIN | (l->out_bytes ? EPOLLOUT : 0u);
    if (wanted == l->events)
        return;
    l->events = wanted;
    loop_change(&lane_of(r, l->peer)->loop, l->fd, wanted, l->peer);
}

static void take_connection(struct receiver *r, const struct hand *hand)
{
    lose(r, hand->peer, -ECONNRESET);
    struct link *l = link_new(hand->peer, hand->fd);
    if (!l) {
        close(hand->fd);
        return;
    }
    l->events = EPOLLIN;
    r->links[hand->peer] = l;
    traffic_add(&r->traffic[hand->peer].connections, 1);
    if (loop_watch(&lane_of(r, hand->peer)->loop, hand->fd, EPOLLIN, hand->peer))
        lose(r, hand->peer, -ECONNRESET);
}

static void take_order(struct receiver *r, const struct monarch_fetch *order)
{
    struct link *l = order->peer < r->options.peers ? r->links[order->peer] : NULL;
    lane_of(r, order->peer)->running++;
    if (l) {
        ring_push(&l->queue, &(struct waiting){*order, clock_ns()});
        return;
    }
    receive_done(r, &(struct monarch_arrival){.file = order->file,
                                              .tier = order->tier,
                                              .step = MONARCH_STEP_READ,
                                              .peer = order->peer,
                                              .status = -ENOTCONN});
}

enum item { NOTHING, HAND, ORDER };

/* next_item - orders come after the connections that were handed over before them. */
static enum item next_item(struct lane *lane, struct hand *hand,
                           struct monarch_fetch *order)
{
    enum item item = NOTHING;
    pthread_mutex_lock(&lane->receiver->lock);
    if (ring_pop(&lane->hands, hand))
        item = HAND;
    else if (ring_pop(&lane->orders, order))
        item = ORDER;
    pthread_mutex_unlock(&lane->receiver->lock);
    return item;
}

static void take_items(struct lane *lane)
{
    struct receiver *r = lane->receiver;
    struct monarch_fetch order;
    struct hand hand;
    for (enum item item; (item = next_item(lane, &hand, &order)) != NOTHING;) {
        if (item == ORDER)
            take_order(r, &order);
        else if (hand.fd >= 0)
            take_connection(r, &hand);
        else
            lose(r, hand.peer, -ECANCELED);
    }
    for (uint32_t i = lane->number; i < r->options.peers; i += r->options.threads)
        if (r->links[i] && r->links[i]->queue.count)
            carry_on(r, r->links[i], 0);
}

/* tick - ends what is late, and tells Python what has not been worth waking it for. */
static void tick(struct lane *lane, uint64_t now)
{
    struct receiver *r = lane->receiver;
    for (uint32_t i = lane->number; i < r->options.peers; i += r->options.threads) {
        if (!r->links[i] || link_idle(r->links[i]))
            continue;
        if (link_quiet(r, r->links[i], now))
            carry_on(r, r->links[i], EPOLLIN); /* it was perhaps we who slept */
        if (!r->links[i])
            continue;
        link_expire(r, r->links[i], now);
        carry_on(r, r->links[i], 0);
    }
}

/* keep_time - does what is due again and again; when Python was told is in `told`. */
static void keep_time(struct lane *lane, uint64_t *ticked, uint64_t *told)
{
    struct receiver *r = lane->receiver;
    uint64_t now = clock_ns();
    if (now - *ticked >= RECEIVER_TICK_MS * (SECOND_NS / 1000)) {
        *ticked = now;
        tick(lane, now);
    }
    if (now - *told >= TELL_MS * (SECOND_NS / 1000)) {
        *told = now;
        pthread_mutex_lock(&r->lock);
        settle(r, true);
        pthread_mutex_unlock(&r->lock);
    }
}

static void *receive_files(void *own)
{
    struct lane *lane = own;
    struct receiver *r = lane->receiver;
    struct epoll_event events[LOOP_EVENTS_MAX];
    uint64_t ticked = 0, told = 0;
    simd_settle();
    while (!loop_stops(&lane->loop)) {
        bool rung = false;
        int n = loop_wait(&lane->loop, events, lane->running ? TELL_MS : -1);
        for (int i = 0; i < n; i++) {
            uint64_t key = events[i].data.u64;
            rung = rung || key == LOOP_BELL;
            if (key != LOOP_BELL && r->links[key])
                carry_on(r, r->links[key], events[i].events);
        }
        if (rung)
            take_items(lane);
        keep_time(lane, &ticked, &told);
    }
    return NULL;
}

/* lane_open - makes what a thread needs; after a failure too, lane_close() is due. */
static int lane_open(struct lane *lane)
{
    int rc = loop_open(&lane->loop);
    if (ring_init(&lane->hands, sizeof(struct hand), HANDS_MAX) ||
        ring_init(&lane->orders, sizeof(struct monarch_fetch), FETCHES_MAX))
        return -ENOMEM;
    return rc;
}

static void lane_close(struct lane *lane)
{
    struct hand hand;
    while (lane->hands.items && ring_pop(&lane->hands, &hand))
        if (hand.fd >= 0)
            close(hand.fd);
    while (lane->spare_count)
        free(lane->spares[--lane->spare_count]);
    loop_close(&lane->loop);
    ring_free(&lane->hands);
    ring_free(&lane->orders);
}

static int open_lanes(struct receiver *r)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->options.threads; i++) {
        struct lane *lane = &r->lanes[i];
        *lane = (struct lane){.receiver = r, .number = i};
        int opened = lane_open(lane);
        rc = rc ? rc : opened;
    }
    for (uint32_t i = 0; !rc && i < r->options.threads; i++)
        rc = loop_start(&r->lanes[i].loop, receive_files, &r->lanes[i]);
    return rc;
}

static int make_queues(struct receiver *r)
{
    uint32_t peers = r->options.peers;
    pthread_mutex_init(&r->lock, NULL);
    r->traffic = calloc(peers, sizeof(*r->traffic));
    r->links = calloc(peers, sizeof(void *));
    if (!r->traffic || !r->links ||
        ring_init(&r->done, sizeof(struct monarch_arrival), FETCHES_MAX))
        return -ENOMEM;
    r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return r->event_fd < 0 ? -errno : 0;
}

static bool usable(const struct monarch_receiver_options *o)
{
    return o->peers && o->peers <= RECEIVER_PEERS_MAX && o->in_flight &&
           o->in_flight <= IN_FLIGHT_MAX && o->react_ms && o->threads &&
           o->threads <= LANES_MAX && o->sealed <= 1;
}

/* monarch_receiver_new - starts a receiver into the Tiers of an engine, which must outlive
 * it. -EINVAL: wrong numbers, or it is to check what the engine does not make. */
int monarch_receiver_new(struct engine *e,
                         const struct monarch_receiver_options *options,
                         struct receiver **out)
{
    if (!usable(options) || (options->sealed ? !e->sealer : e->options.seals_only))
        return -EINVAL;
    struct receiver *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->engine = e;
    r->options = *options;
    r->event_fd = -1;
    int rc = make_queues(r);
    int opened = open_lanes(r);
    rc = rc ? rc : opened;
    if (rc) {
        monarch_receiver_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

/* monarch_receiver_event_fd - readable while arrivals wait; it is emptied by itself. */
int monarch_receiver_event_fd(const struct receiver *r)
{
    return r->event_fd;
}

static int hand_over(struct receiver *r, const struct hand *hand)
{
    struct lane *lane = lane_of(r, hand->peer);
    pthread_mutex_lock(&r->lock);
    bool taken = ring_push(&lane->hands, hand);
    pthread_mutex_unlock(&r->lock);
    if (!taken)
        return -EAGAIN;
    loop_ring(&lane->loop);
    return 0;
}

/* monarch_receiver_connect - asks a peer on this socket from now on, which is the
 * receiver's unless this fails; an older one to that peer is closed. */
int monarch_receiver_connect(struct receiver *r, uint32_t peer, int fd)
{
    if (peer >= r->options.peers)
        return -EINVAL;
    int rc = socket_prepare(fd);
    return rc ? rc : hand_over(r, &(struct hand){.fd = fd, .peer = peer});
}

/* monarch_receiver_disconnect - closes the connection to a peer, whose orders end with
 * -ECANCELED. */
int monarch_receiver_disconnect(struct receiver *r, uint32_t peer)
{
    if (peer >= r->options.peers)
        return -EINVAL;
    return hand_over(r, &(struct hand){.fd = -1, .peer = peer});
}

/* monarch_receiver_submit - queues orders and returns how many it took: all, unless
 * FETCHES_MAX are not collected yet. */
uint32_t monarch_receiver_submit(struct receiver *r, const struct monarch_fetch *orders,
                                 uint32_t n)
{
    uint32_t taken = 0;
    bool rings[LANES_MAX] = {false};
    pthread_mutex_lock(&r->lock);
    for (; taken < n && r->outstanding < FETCHES_MAX; taken++, r->outstanding++) {
        struct lane *lane = lane_of(r, orders[taken].peer);
        ring_push(&lane->orders, &orders[taken]);
        rings[lane->number] = true;
    }
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->options.threads; i++)
        if (rings[i])
            loop_ring(&r->lanes[i].loop);
    return taken;
}

/* monarch_receiver_arrivals - takes up to `max` orders that have ended. */
uint32_t monarch_receiver_arrivals(struct receiver *r, struct monarch_arrival *out,
                                   uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&r->lock);
    while (n < max && ring_pop(&r->done, &out[n]))
        n++;
    r->outstanding -= n;
    r->failed = r->failed && r->done.count;
    settle(r, r->signalled);
    pthread_mutex_unlock(&r->lock);
    return n;
}

/* monarch_receiver_traffic - copies the counts of all peers. */
void monarch_receiver_traffic(const struct receiver *r, struct monarch_traffic *out)
{
    traffic_copy(r->traffic, out, r->options.peers);
}

/* monarch_receiver_free - ends the threads and closes all; what was under way leaves no
 * file. */
void monarch_receiver_free(struct receiver *r)
{
    for (uint32_t i = 0; i < r->options.threads; i++)
        loop_stop(&r->lanes[i].loop);
    for (uint32_t i = 0; r->links && i < r->options.peers; i++)
        lose(r, i, -ECANCELED);
    for (uint32_t i = 0; i < r->options.threads; i++)
        lane_close(&r->lanes[i]);
    if (r->event_fd >= 0)
        close(r->event_fd);
    ring_free(&r->done);
    free(r->links);
    free(r->traffic);
    free(r);
}
