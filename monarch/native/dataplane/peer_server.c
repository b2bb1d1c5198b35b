/* peer_server.c - the thread that answers peers, and how Python hands connections to it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataplane/peer_server.h"
#include "dataplane/clock.h"
#include "dataplane/ring.h"
#include "dataplane/traffic.h"

enum { HANDS_MAX = 1024 };

struct hand { /* fd -1: all connections of the peer are to be closed */
    int fd;
    uint32_t peer;
};

/* recount - keeps the numbers of connections that wait and that send. */
static void recount(struct server *s, struct connection *c, bool waits, bool sends)
{
    s->waiting += (uint32_t)waits - c->counted_waits;
    s->sending += (uint32_t)sends - c->counted_sends;
    c->counted_waits = waits;
    c->counted_sends = sends;
}

static void drop(struct server *s, struct connection *c, int status)
{
    struct monarch_traffic *traffic = &s->traffic[c->peer];
    traffic_add(&traffic->malformed, status == -EPROTO);
    traffic_add(&traffic->lost, 1);
    traffic_add(&traffic->connections, UINT64_MAX); /* one less */
    recount(s, c, false, false);
    answer_release(c);
    s->connections[c->place] = NULL;
    free(c);
    pthread_mutex_lock(&s->lock);
    s->taken--;
    pthread_mutex_unlock(&s->lock);
}

static void settle(struct server *s, struct connection *c)
{
    bool sends = c->out.active || c->more;
    recount(s, c, c->waits, c->out.active);
    uint32_t events = (c->pending_count < PIPELINE_MAX ? EPOLLIN : 0u) |
                      (sends ? EPOLLOUT : 0u);
    if (events == c->events)
        return;
    c->events = events;
    loop_change(&s->loop, c->fd, events, c->place);
}

static void carry_on(struct server *s, struct connection *c, uint32_t events)
{
    int rc = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? answer_read(s, c) : 0;
    if (!rc && (events & (EPOLLHUP | EPOLLERR)) && c->pending_count == PIPELINE_MAX)
        rc = -ECONNRESET; /* nothing was read that could have told */
    rc = rc ? rc : answer_pump(s, c, clock_ns());
    if (rc)
        drop(s, c, rc);
    else
        settle(s, c);
}

static void take_connection(struct server *s, const struct hand *hand)
{
    uint32_t place = 0;
    while (s->connections[place])
        place++;
    struct connection *c = calloc(1, sizeof(*c));
    if (c)
        *c = (struct connection){
            .fd = hand->fd, .peer = hand->peer, .place = place, .events = EPOLLIN};
    if (!c || loop_watch(&s->loop, hand->fd, EPOLLIN, place)) {
        close(hand->fd);
        free(c);
        pthread_mutex_lock(&s->lock);
        s->taken--;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    s->connections[place] = c;
    s->places = place >= s->places ? place + 1 : s->places;
    traffic_add(&s->traffic[c->peer].connections, 1);
}

static void drop_peer(struct server *s, uint32_t peer)
{
    for (uint32_t i = 0; i < s->places; i++)
        if (s->connections[i] && s->connections[i]->peer == peer)
            drop(s, s->connections[i], -ECANCELED);
}

static bool next_hand(struct server *s, struct hand *hand)
{
    pthread_mutex_lock(&s->lock);
    bool some = ring_pop(&s->hands, hand);
    pthread_mutex_unlock(&s->lock);
    return some;
}

static void take_hands(struct server *s)
{
    struct hand hand;
    while (next_hand(s, &hand)) {
        if (hand.fd >= 0)
            take_connection(s, &hand);
        else
            drop_peer(s, hand.peer);
    }
}

/* look_again - at all that waits for a File or for room in its socket. */
static void look_again(struct server *s)
{
    for (uint32_t i = 0; i < s->places; i++)
        if (s->connections[i] &&
            (s->connections[i]->waits || s->connections[i]->out.active))
            carry_on(s, s->connections[i], 0);
}

/* patience - how long the loop may sleep. */
static int patience(const struct server *s)
{
    bool busy = s->sending || s->waiting;
    for (int i = 0; i < KEPT_MAX && !busy; i++)
        busy = s->kept[i].fd >= 0;
    return busy ? SERVER_TICK_MS : -1;
}

static void *serve(void *server)
{
    struct server *s = server;
    struct epoll_event events[LOOP_EVENTS_MAX];
    uint64_t tick = 0;
    while (!loop_stops(&s->loop)) {
        bool rung = false;
        if (s->waiting && watch_arm(&s->watch))
            look_again(s); /* what changed before the watch was armed */
        int n = loop_wait(&s->loop, events, patience(s));
        for (int i = 0; i < n; i++) {
            uint64_t key = events[i].data.u64;
            rung = rung || key == LOOP_BELL;
            if (key != LOOP_BELL && s->connections[key])
                carry_on(s, s->connections[key], events[i].events);
        }
        if (rung)
            take_hands(s);
        uint64_t now = clock_ns();
        if (now - tick < SERVER_TICK_MS * (SECOND_NS / 1000))
            continue;
        tick = now;
        look_again(s);
        kept_sweep(s->engine, s->kept);
    }
    return NULL;
}

static bool usable(const struct monarch_server_options *o)
{
    return o->peers > 0 && o->connections > 0 && o->connections <= CONNECTIONS_MAX;
}

/* monarch_server_new - starts a server of the Replicas of an engine, which must outlive
 * it. -EINVAL: wrong numbers. */
int monarch_server_new(struct engine *e, const struct monarch_server_options *options,
                       struct server **out)
{
    if (!usable(options))
        return -EINVAL;
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->engine = e;
    s->options = *options;
    kept_init(s->kept);
    pthread_mutex_init(&s->lock, NULL);
    int rc = loop_open(&s->loop);
    watch_add(&s->watch, e->catalog, &s->loop);
    s->traffic = calloc(options->peers, sizeof(*s->traffic));
    s->connections = calloc(options->connections, sizeof(void *));
    if (!rc && (!s->traffic || !s->connections ||
                ring_init(&s->hands, sizeof(struct hand), HANDS_MAX)))
        rc = -ENOMEM;
    rc = rc ? rc : loop_start(&s->loop, serve, s);
    if (rc) {
        monarch_server_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int hand_over(struct server *s, const struct hand *hand)
{
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    if (hand->fd >= 0 && s->taken == s->options.connections)
        rc = -EMFILE;
    else if (!ring_push(&s->hands, hand))
        rc = -EAGAIN;
    else
        s->taken += hand->fd >= 0;
    pthread_mutex_unlock(&s->lock);
    if (!rc)
        loop_ring(&s->loop);
    return rc;
}

/* monarch_server_adopt - answers what an authenticated peer asks on this socket, which is
 * the server's from now on unless this fails. -EMFILE: it has as many as it may. */
int monarch_server_adopt(struct server *s, uint32_t peer, int fd)
{
    if (peer >= s->options.peers)
        return -EINVAL;
    int rc = socket_prepare(fd);
    return rc ? rc : hand_over(s, &(struct hand){.fd = fd, .peer = peer});
}

/* monarch_server_drop - closes all connections of a peer. */
int monarch_server_drop(struct server *s, uint32_t peer)
{
    if (peer >= s->options.peers)
        return -EINVAL;
    return hand_over(s, &(struct hand){.fd = -1, .peer = peer});
}

/* monarch_server_traffic - copies the counts of all peers. */
void monarch_server_traffic(const struct server *s, struct monarch_traffic *out)
{
    traffic_copy(s->traffic, out, s->options.peers);
}

/* monarch_server_free - ends the thread, replies in mid-sending too, and closes all. */
void monarch_server_free(struct server *s)
{
    struct hand hand;
    loop_stop(&s->loop);
    watch_remove(&s->watch);
    for (uint32_t i = 0; i < s->places; i++)
        if (s->connections[i])
            drop(s, s->connections[i], -ECANCELED);
    while (s->hands.items && next_hand(s, &hand))
        if (hand.fd >= 0)
            close(hand.fd);
    kept_free(s->kept);
    loop_close(&s->loop);
    ring_free(&s->hands);
    free(s->connections);
    free(s->traffic);
    free(s);
}
