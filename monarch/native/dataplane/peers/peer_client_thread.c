/* peer_client_thread.c - the threads that fetch Files from peers, and the functions by which
 * Python controls them. */
#include "dataplane/peers/peer_client.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"

static void disconnect(struct receiver *r, uint32_t peer, int status)
{
    struct client_connection *c = r->connections[peer];
    if (!c)
        return;
    r->connections[peer] = NULL;
    traffic_add(&r->traffic[peer].connections, UINT64_MAX); /* one less */
    traffic_add(&r->traffic[peer].lost, 1);
    traffic_add(&r->traffic[peer].malformed, status == -EPROTO);
    client_end(r, c, status);
}

static void serve_connection(struct receiver *r, struct client_connection *c,
                             uint32_t events)
{
    bool readable = events & (EPOLLIN | EPOLLHUP | EPOLLERR);
    int rc = readable ? client_receive(r, c) : 0;
    rc = rc ? rc : client_send(r, c, clock_ns());
    if (rc) {
        disconnect(r, c->peer, rc);
        return;
    }
    uint32_t wanted = EPOLLIN | (c->out_bytes ? EPOLLOUT : 0u);
    if (wanted == c->events)
        return;
    c->events = wanted;
    poller_modify(&client_thread_of(r, c->peer)->poller, c->fd, wanted, c->peer);
}

static void add_connection(struct receiver *r, const struct peer_command *command)
{
    disconnect(r, command->peer, -ECONNRESET);
    struct client_connection *c = client_new(command->peer, command->fd);
    if (!c) {
        close(command->fd);
        return;
    }
    c->events = EPOLLIN;
    r->connections[command->peer] = c;
    traffic_add(&r->traffic[command->peer].connections, 1);
    if (poller_add(&client_thread_of(r, command->peer)->poller, command->fd, EPOLLIN,
                   command->peer))
        disconnect(r, command->peer, -ECONNRESET);
}

static void queue_order(struct receiver *r, const struct monarch_order *order)
{
    struct client_connection *c = order->peer < r->options.peers
                                      ? r->connections[order->peer]
                                      : NULL;
    client_thread_of(r, order->peer)->running++;
    if (c) {
        client_queue(c, &(struct queued_fetch){*order, clock_ns(), false});
        return;
    }
    fetch_refuse(r, order, -ENOTCONN);
}

struct item {
    enum { NOTHING, COMMAND, ORDER, WANT } kind;
    struct peer_command command;
    struct monarch_order order;
    struct page_want wanted;
};

/* next_item - takes commands before orders, as an order uses the connection made before it, and
 * wants last, as wanted Blocks were ordered before. */
static bool next_item(struct client_thread *t, struct item *out)
{
    out->kind = NOTHING;
    pthread_mutex_lock(&t->receiver->lock);
    if (ring_pop(&t->commands, &out->command))
        out->kind = COMMAND;
    else if (ring_pop(&t->orders, &out->order))
        out->kind = ORDER;
    else if (ring_pop(&t->wants, &out->wanted))
        out->kind = WANT;
    pthread_mutex_unlock(&t->receiver->lock);
    return out->kind != NOTHING;
}

/* want_blocks - raises the requests for Blocks that programs wait for now. */
static void want_blocks(struct client_thread *t, const struct page_want *wanted)
{
    struct receiver *r = t->receiver;
    for (uint32_t i = t->number; i < r->options.peers; i += r->options.threads)
        if (r->connections[i] && client_want(r, r->connections[i], wanted))
            serve_connection(r, r->connections[i], 0);
}

static void take_items(struct client_thread *t)
{
    struct receiver *r = t->receiver;
    for (struct item item; next_item(t, &item);) {
        if (item.kind == ORDER)
            queue_order(r, &item.order);
        else if (item.kind == WANT)
            want_blocks(t, &item.wanted);
        else if (item.command.fd >= 0)
            add_connection(r, &item.command);
        else
            disconnect(r, item.command.peer, -ECANCELED);
    }
    for (uint32_t i = t->number; i < r->options.peers; i += r->options.threads)
        if (r->connections[i] && client_queued(r->connections[i]))
            serve_connection(r, r->connections[i], 0);
}

/* check_timeouts - ends the late fetches on the connections of a thread. */
static void check_timeouts(struct client_thread *t, uint64_t now)
{
    struct receiver *r = t->receiver;
    for (uint32_t i = t->number; i < r->options.peers; i += r->options.threads) {
        if (!r->connections[i] || client_idle(r->connections[i]))
            continue;
        if (client_silent(r, r->connections[i], now))
            serve_connection(r, r->connections[i],
                             EPOLLIN); /* this process may have been suspended */
        if (!r->connections[i])
            continue;
        client_expire(r, r->connections[i], now);
        serve_connection(r, r->connections[i], 0);
    }
}

/* push - queues an order; false: FETCHES_MAX have not ended. Under the lock. */
static bool push(struct receiver *r, const struct monarch_order *order)
{
    if (r->outstanding == FETCHES_MAX)
        return false;
    r->outstanding++;
    r->background += order->kind & MONARCH_BACKGROUND;
    r->background_bytes += fetch_background_bytes(r, order->kind, order->file,
                                                  order->page_count);
    ring_push(&client_thread_of(r, order->peer)->orders, order);
    return true;
}

/* push_alone - queues an order that the table has begun; false: too many have not ended. */
static bool push_alone(void *receiver, const struct monarch_order *order)
{
    struct receiver *r = receiver;
    pthread_mutex_lock(&r->lock);
    bool pushed = push(r, order);
    pthread_mutex_unlock(&r->lock);
    if (pushed)
        poller_wake(&client_thread_of(r, order->peer)->poller);
    return pushed;
}

/* wake - wakes the threads to look for Files that fill may fetch. */
static void wake(void *receiver)
{
    struct receiver *r = receiver;
    for (uint32_t i = 0; i < r->options.threads; i++)
        poller_wake(&r->threads[i].poller);
}

/* want_later - lets the threads raise requests of fill for Blocks that a program waits for to
 * demand, and notify the peers. */
static void want_later(void *receiver, const struct page_want *wanted)
{
    struct receiver *r = receiver;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->options.threads; i++)
        ring_push(&r->threads[i].wants, wanted); /* too many: these stay background */
    pthread_mutex_unlock(&r->lock);
    wake(r);
}

/* has_room - unasked fetches leave connections for the requests of programs. */
static bool has_room(void *receiver)
{
    struct receiver *r = receiver;
    pthread_mutex_lock(&r->lock);
    bool room = r->background < HINTED_MAX &&
                r->background_bytes - r->waiting_bytes < HINTED_BYTES_MAX;
    pthread_mutex_unlock(&r->lock);
    return room;
}

/* fetch_unasked - begins fetches that fill may make now; true: more may follow later. */
static bool fetch_unasked(struct receiver *r)
{
    struct demand *d = r->demand;
    struct monarch_order order;
    pthread_mutex_lock(&d->transfers->lock);
    pthread_mutex_lock(&r->lock);
    uint64_t count = r->background, bytes = r->background_bytes - r->waiting_bytes;
    pthread_mutex_unlock(&r->lock);
    uint64_t room = fill_fetch_room(d, count, bytes);
    for (; room && fill_fetch(d, &order); room--) {
        bool pushed = order.peer == NO_PEER ? scheduler_push(d->transfers, &order)
                                            : push_alone(r, &order);
        if (!pushed)
            monarch_table_fail(d->table, &order, REASON_NONE, 1);
    }
    bool more = d->fill.to_fetch.next < d->fill.to_fetch.count && !d->fill.paused;
    pthread_mutex_unlock(&d->transfers->lock);
    return more;
}

/* fetch_rests - fetches missing parts of large Files, as many as may be in flight. The threads are
 * woken for that with each heartbeat. */
static void fetch_rests(struct client_thread *t)
{
    struct receiver *r = t->receiver;
    struct demand *d = r->demand;
    uint64_t now = clock_ns();
    if (now - t->looked_ns < SIGNAL_MS * MS_NS || !d->table ||
        !partials_to_complete(d->partials) || !fill_may_fetch(d))
        return;
    t->looked_ns = now;
    while (has_room(r) && fill_fetch_next(d))
        ;
}

/* run_periodic - checks time-outs and signals arrivals, each in its period. */
static void run_periodic(struct client_thread *t)
{
    struct receiver *r = t->receiver;
    uint64_t now = clock_ns();
    if (now - t->checked_ns >= CLIENT_TICK_MS * MS_NS) {
        t->checked_ns = now;
        check_timeouts(t, now);
        pthread_mutex_lock(&r->lock);
        completions_expire(r->demand->transfers, &r->done);
        pthread_mutex_unlock(&r->lock);
    }
    if (now - t->signalled_ns >= SIGNAL_MS * MS_NS) {
        t->signalled_ns = now;
        pthread_mutex_lock(&r->lock);
        arrivals_signal(r, true);
        pthread_mutex_unlock(&r->lock);
    }
}

/* waits_for_python - failures are queued for which Python may be too late. */
static bool waits_for_python(struct receiver *r)
{
    pthread_mutex_lock(&r->lock);
    bool waits = r->done.count > 0;
    pthread_mutex_unlock(&r->lock);
    return waits;
}

static void *run_client(void *own)
{
    struct client_thread *t = own;
    struct receiver *r = t->receiver;
    struct epoll_event events[POLLER_EVENTS_MAX];
    bool fills = false;
    vector_registers_reset();
    while (!poller_stopping(&t->poller)) {
        bool woken = false, busy = t->running || fills || waits_for_python(r);
        int n = poller_wait(&t->poller, events, busy ? SIGNAL_MS : -1);
        for (int i = 0; i < n; i++) {
            uint64_t key = events[i].data.u64;
            woken = woken || key == POLLER_WAKE_KEY;
            if (key != POLLER_WAKE_KEY && r->connections[key])
                serve_connection(r, r->connections[key], events[i].events);
        }
        if (woken)
            take_items(t);
        fills = t->number == 0 && r->demand->table && fetch_unasked(r);
        fetch_rests(t);
        run_periodic(t);
    }
    return NULL;
}

/* thread_open - allocates the memory of a thread; thread_close() must follow, even after a
 * failure. */
static int thread_open(struct client_thread *t)
{
    int rc = poller_open(&t->poller);
    if (ring_init(&t->commands, sizeof(struct peer_command), PEER_COMMANDS_MAX) ||
        ring_init(&t->orders, sizeof(struct monarch_order), FETCHES_MAX) ||
        ring_init(&t->wants, sizeof(struct page_want), WANTS_MAX))
        return -ENOMEM;
    return rc;
}

static void thread_close(struct client_thread *t)
{
    struct peer_command command;
    while (t->commands.items && ring_pop(&t->commands, &command))
        if (command.fd >= 0)
            close(command.fd);
    while (t->spare_count)
        free(t->spares[--t->spare_count]);
    poller_close(&t->poller);
    ring_free(&t->commands);
    ring_free(&t->orders);
    ring_free(&t->wants);
}

static int open_threads(struct receiver *r)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->options.threads; i++) {
        struct client_thread *t = &r->threads[i];
        *t = (struct client_thread){.receiver = r, .number = i};
        int opened = thread_open(t);
        rc = rc ? rc : opened;
    }
    for (uint32_t i = 0; !rc && i < r->options.threads; i++)
        rc = poller_start(&r->threads[i].poller, "peer client", run_client,
                          &r->threads[i]);
    return rc;
}

static int init_queues(struct receiver *r)
{
    uint32_t peers = r->options.peers;
    pthread_mutex_init(&r->lock, NULL);
    r->traffic = calloc(peers, sizeof(*r->traffic));
    r->connections = calloc(peers, sizeof(void *));
    if (!r->traffic || !r->connections ||
        ring_init(&r->done, sizeof(struct monarch_completion), FETCHES_MAX))
        return -ENOMEM;
    return event_fd_open(&r->event_fd);
}

static bool usable(const struct monarch_receiver_options *o)
{
    return o->peers && o->peers <= CLIENT_PEERS_MAX && o->in_flight &&
           o->in_flight <= IN_FLIGHT_MAX && o->react_ms && o->threads &&
           o->threads <= CLIENT_THREADS_MAX && o->sealed <= 1;
}

/* receiver_new - starts a client that fetches into the Tiers of an engine, which must outlive it.
 * -EINVAL: invalid options, or seals or checksums that the engine does not make. */
int receiver_new(struct demand *d, const struct monarch_receiver_options *options,
                 struct receiver **out)
{
    if (!usable(options) ||
        (options->sealed ? !d->transfers->sealer : d->transfers->options.seals_only))
        return -EINVAL;
    struct receiver *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->demand = d;
    r->options = *options;
    r->event_fd.fd = -1;
    int rc = init_queues(r);
    int opened = open_threads(r);
    rc = rc ? rc : opened;
    if (rc) {
        monarch_receiver_free(r);
        return rc;
    }
    pthread_mutex_lock(&d->transfers->lock);
    d->fetcher = (struct fetcher){.of = r,
                                  .push = push_alone,
                                  .want = want_later,
                                  .wake = wake,
                                  .has_room = has_room};
    pthread_mutex_unlock(&d->transfers->lock);
    *out = r;
    return 0;
}

static int push_command(struct receiver *r, const struct peer_command *command)
{
    struct client_thread *t = client_thread_of(r, command->peer);
    pthread_mutex_lock(&r->lock);
    bool pushed = ring_push(&t->commands, command);
    pthread_mutex_unlock(&r->lock);
    if (!pushed)
        return -EAGAIN;
    poller_wake(&t->poller);
    return 0;
}

/* monarch_receiver_connect - fetches from a peer over this socket and takes ownership of it unless
 * this fails; an older connection to the peer is closed. */
int monarch_receiver_connect(struct receiver *r, uint32_t peer, int fd)
{
    if (peer >= r->options.peers)
        return -EINVAL;
    int rc = socket_prepare(fd);
    return rc ? rc : push_command(r, &(struct peer_command){.fd = fd, .peer = peer});
}

/* monarch_receiver_disconnect - closes the connection to a peer; its orders end with
 * -ECANCELED. */
int monarch_receiver_disconnect(struct receiver *r, uint32_t peer)
{
    if (peer >= r->options.peers)
        return -EINVAL;
    return push_command(r, &(struct peer_command){.fd = -1, .peer = peer});
}

/* monarch_receiver_submit - queues orders and returns how many it accepted: all, unless
 * FETCHES_MAX are not collected yet. */
uint32_t monarch_receiver_submit(struct receiver *r, const struct monarch_order *orders,
                                 uint32_t n)
{
    uint32_t taken = 0;
    bool wakes[CLIENT_THREADS_MAX] = {false};
    pthread_mutex_lock(&r->lock);
    for (; taken < n && push(r, &orders[taken]); taken++)
        wakes[client_thread_of(r, orders[taken].peer)->number] = true;
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->options.threads; i++)
        if (wakes[i])
            poller_wake(&r->threads[i].poller);
    return taken;
}

/* monarch_receiver_traffic - copies the counts of all peers. */
void monarch_receiver_traffic(const struct receiver *r, struct monarch_traffic *out)
{
    traffic_copy(r->traffic, out, r->options.peers);
}

/* monarch_receiver_free - ends the threads and closes all connections; unfinished
 * fetches leave no file. */
void monarch_receiver_free(struct receiver *r)
{
    pthread_mutex_lock(&r->demand->transfers->lock);
    if (r->demand->fetcher.of == r)
        r->demand->fetcher.of = NULL;
    pthread_mutex_unlock(&r->demand->transfers->lock);
    for (uint32_t i = 0; i < r->options.threads; i++)
        poller_stop(&r->threads[i].poller);
    for (uint32_t i = 0; r->connections && i < r->options.peers; i++)
        disconnect(r, i, -ECANCELED);
    for (uint32_t i = 0; i < r->options.threads; i++)
        thread_close(&r->threads[i]);
    event_fd_close(&r->event_fd);
    ring_free(&r->done);
    free(r->connections);
    free(r->traffic);
    free(r);
}
