/* peer_server_thread.c - the thread that serves peers, and the functions by which Python
 * controls it. */
#include "dataplane/peers/peer_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* recount - updates the counts of connections that wait and that send. */
static void recount(struct server *s, struct server_connection *c, bool waits,
                    bool sends)
{
    s->waiting += (uint32_t)waits - c->counted_waits;
    s->sending += (uint32_t)sends - c->counted_sends;
    c->counted_waits = waits;
    c->counted_sends = sends;
}

static void drop(struct server *s, struct server_connection *c, int status)
{
    struct monarch_traffic *traffic = &s->traffic[c->peer];
    traffic_add(&traffic->malformed, status == -EPROTO);
    traffic_add(&traffic->lost, 1);
    traffic_add(&traffic->connections, UINT64_MAX); /* one less */
    recount(s, c, false, false);
    connection_close(s, c);
    s->connections[c->slot] = NULL;
    free(c);
    pthread_mutex_lock(&s->lock);
    s->connection_count--;
    pthread_mutex_unlock(&s->lock);
}

static void set_events(struct server *s, struct server_connection *c)
{
    bool sends = c->out.active || c->turn_over;
    recount(s, c, c->waits, c->out.active);
    uint32_t events = (c->pending_count < PIPELINE_MAX ? EPOLLIN : 0u) |
                      (sends ? EPOLLOUT : 0u);
    if (events == c->events)
        return;
    c->events = events;
    poller_modify(&s->poller, c->fd, events, c->slot);
}

static void serve_connection(struct server *s, struct server_connection *c,
                             uint32_t events)
{
    int rc = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? connection_read(s, c) : 0;
    if (!rc && (events & (EPOLLHUP | EPOLLERR)) && c->pending_count == PIPELINE_MAX)
        rc = -ECONNRESET; /* recv(), which would fail, was not called */
    rc = rc ? rc : connection_send(s, c, clock_ns());
    if (rc)
        drop(s, c, rc);
    else
        set_events(s, c);
}

static void add_connection(struct server *s, const struct peer_command *command)
{
    uint32_t slot = 0;
    while (s->connections[slot])
        slot++;
    struct server_connection *c = calloc(1, sizeof(*c));
    if (c)
        *c = (struct server_connection){
            .fd = command->fd, .peer = command->peer, .slot = slot, .events = EPOLLIN};
    if (!c || poller_add(&s->poller, command->fd, EPOLLIN, slot)) {
        close(command->fd);
        free(c);
        pthread_mutex_lock(&s->lock);
        s->connection_count--;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    s->connections[slot] = c;
    s->slots_used = slot >= s->slots_used ? slot + 1 : s->slots_used;
    traffic_add(&s->traffic[c->peer].connections, 1);
}

static void drop_peer(struct server *s, uint32_t peer)
{
    for (uint32_t i = 0; i < s->slots_used; i++)
        if (s->connections[i] && s->connections[i]->peer == peer)
            drop(s, s->connections[i], -ECANCELED);
}

static bool pop_command(struct server *s, struct peer_command *command)
{
    pthread_mutex_lock(&s->lock);
    bool found = ring_pop(&s->commands, command);
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void run_commands(struct server *s)
{
    struct peer_command command;
    while (pop_command(s, &command)) {
        if (command.fd >= 0)
            add_connection(s, &command);
        else
            drop_peer(s, command.peer);
    }
}

/* retry_all - serves the connections that wait for a File or for space in the socket. */
static void retry_all(struct server *s)
{
    for (uint32_t i = 0; i < s->slots_used; i++)
        if (s->connections[i] &&
            (s->connections[i]->waits || s->connections[i]->out.active))
            serve_connection(s, s->connections[i], 0);
}

/* wait_ms - returns how long the thread may sleep; -1: until it is woken. */
static int wait_ms(const struct server *s)
{
    bool busy = s->sending || s->waiting;
    for (int i = 0; i < OPEN_REPLICAS_MAX && !busy; i++)
        busy = s->replicas[i].fd >= 0;
    return busy ? SERVER_TICK_MS : -1;
}

static void *run_server(void *server)
{
    struct server *s = server;
    struct epoll_event events[POLLER_EVENTS_MAX];
    uint64_t tick = 0;
    while (!poller_stopping(&s->poller)) {
        bool woken = false;
        if (s->waiting && state_watch_arm(&s->watch))
            retry_all(s); /* for changes before the watch was armed */
        int n = poller_wait(&s->poller, events, wait_ms(s));
        for (int i = 0; i < n; i++) {
            uint64_t key = events[i].data.u64;
            woken = woken || key == POLLER_WAKE_KEY;
            if (key != POLLER_WAKE_KEY && s->connections[key])
                serve_connection(s, s->connections[key], events[i].events);
        }
        if (woken)
            run_commands(s);
        uint64_t now = clock_ns();
        if (now - tick < SERVER_TICK_MS * MS_NS)
            continue;
        tick = now;
        retry_all(s);
        open_replicas_sweep(s->demand->job, s->replicas);
    }
    return NULL;
}

static bool usable(const struct monarch_server_options *o)
{
    return o->peers > 0 && o->connections > 0 && o->connections <= CONNECTIONS_MAX;
}

/* server_new - starts a server of the Replicas of an engine, which must outlive
 * it. -EINVAL: invalid options. */
int server_new(struct demand *d, const struct monarch_server_options *options,
               struct server **out)
{
    if (!usable(options))
        return -EINVAL;
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->demand = d;
    s->options = *options;
    open_replicas_init(s->replicas);
    pthread_mutex_init(&s->lock, NULL);
    int rc = poller_open(&s->poller);
    state_watch_add(&s->watch, d->job->catalog, &s->poller);
    s->traffic = calloc(options->peers, sizeof(*s->traffic));
    s->connections = calloc(options->connections, sizeof(void *));
    if (!rc &&
        (!s->traffic || !s->connections ||
         ring_init(&s->commands, sizeof(struct peer_command), PEER_COMMANDS_MAX)))
        rc = -ENOMEM;
    rc = rc ? rc : poller_start(&s->poller, "peer server", run_server, s);
    if (rc) {
        monarch_server_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int push_command(struct server *s, const struct peer_command *command)
{
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    if (command->fd >= 0 && s->connection_count == s->options.connections)
        rc = -EMFILE;
    else if (!ring_push(&s->commands, command))
        rc = -EAGAIN;
    else
        s->connection_count += command->fd >= 0;
    pthread_mutex_unlock(&s->lock);
    if (!rc)
        poller_wake(&s->poller);
    return rc;
}

/* monarch_server_adopt - serves an authenticated peer on this socket and takes
 * ownership of it unless this fails. -EMFILE: the limit of connections is reached. */
int monarch_server_adopt(struct server *s, uint32_t peer, int fd)
{
    if (peer >= s->options.peers)
        return -EINVAL;
    int rc = socket_prepare(fd);
    return rc ? rc : push_command(s, &(struct peer_command){.fd = fd, .peer = peer});
}

/* monarch_server_drop - closes all connections of a peer. */
int monarch_server_drop(struct server *s, uint32_t peer)
{
    if (peer >= s->options.peers)
        return -EINVAL;
    return push_command(s, &(struct peer_command){.fd = -1, .peer = peer});
}

/* monarch_server_traffic - copies the counts of all peers. */
void monarch_server_traffic(const struct server *s, struct monarch_traffic *out)
{
    traffic_copy(s->traffic, out, s->options.peers);
}

/* monarch_server_free - ends the thread and closes all connections; replies are cut off. */
void monarch_server_free(struct server *s)
{
    struct peer_command command;
    poller_stop(&s->poller);
    state_watch_remove(&s->watch);
    for (uint32_t i = 0; i < s->slots_used; i++)
        if (s->connections[i])
            drop(s, s->connections[i], -ECANCELED);
    while (s->commands.items && pop_command(s, &command))
        if (command.fd >= 0)
            close(command.fd);
    while (s->spare_count)
        free(s->spares[--s->spare_count]);
    open_replicas_close(s->replicas);
    poller_close(&s->poller);
    ring_free(&s->commands);
    free(s->connections);
    free(s->traffic);
    free(s);
}
