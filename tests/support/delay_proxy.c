/* delay_proxy.c - a long network as a TCP proxy: bytes arrive later, at a link's rate.
 *
 *     delay_proxy PORT HOST:PORT ONE_WAY_MS [MB_A_S [QUEUE_KB]]
 *
 * Both ways are delayed. The way back, from the server, has the link's rate; bytes that
 * do not fit into the queue before the link are dropped: their connection is closed. It
 * prints its listening port; with PORT 0 the kernel chooses it. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES 65536
#define EVENTS 256
#define BACKLOG 4096
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000.0

/* Bytes on their way to an end: on the line until they are due, then before its socket. */
struct chunk {
    struct chunk *next;
    struct end *to;
    uint64_t due_ns;
    size_t size, sent;
    char data[];
};

struct queue {
    struct chunk *first, **last;
};

/* One end of a connection; received bytes are sent to its peer. */
struct end {
    int fd;
    bool from_server, is_open;
    struct end *peer;
    struct queue arrived; /* to be written to this end */
    size_t on_line;
    struct end *next_dead;
};

static struct {
    int poll;
    struct sockaddr_in server;
    uint64_t delay_ns;
    double bytes_per_ns, queue_bytes;
    uint64_t link_free_ns;
    struct queue lines[2]; /* to clients and to the server; each in the order of time */
    struct end *dead;
} proxy;

static void put(struct queue *queue, struct chunk *chunk)
{
    chunk->next = NULL;
    *queue->last = chunk;
    queue->last = &chunk->next;
}

static struct chunk *get(struct queue *queue)
{
    struct chunk *chunk = queue->first;

    queue->first = chunk->next;
    if (!queue->first)
        queue->last = &queue->first;
    return chunk;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(struct end *end, uint32_t events, int how)
{
    struct epoll_event event = {.events = events, .data.ptr = end};

    if (epoll_ctl(proxy.poll, how, end->fd, &event) < 0)
        fail("epoll_ctl");
}

static struct end *end_of(int fd, bool from_server)
{
    struct end *end = calloc(1, sizeof(*end));
    int one = 1;

    if (!end)
        fail("calloc");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    end->fd = fd;
    end->from_server = from_server;
    end->is_open = true;
    end->arrived.last = &end->arrived.first;
    return end;
}

static void close_end(struct end *end)
{
    if (!end->is_open)
        return;
    end->is_open = false;
    close(end->fd);
    while (end->arrived.first)
        free(get(&end->arrived));
    end->next_dead = proxy.dead; /* events of this turn may still refer to it */
    proxy.dead = end;
}

static void close_both(struct end *end)
{
    close_end(end->peer);
    close_end(end);
}

/* Frees the ends to which no bytes on the line belong any more. */
static void bury(void)
{
    struct end **at = &proxy.dead;

    while (*at) {
        struct end *end = *at;

        if (end->on_line) {
            at = &end->next_dead;
            continue;
        }
        *at = end->next_dead;
        free(end);
    }
}

static void accept_one(int listener)
{
    int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), server;
    struct end *near, *far;

    if (client < 0)
        return;
    server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server < 0)
        fail("socket");
    if (connect(server, (struct sockaddr *)&proxy.server, sizeof(proxy.server)) < 0 &&
        errno != EINPROGRESS) {
        close(client);
        close(server);
        return;
    }
    near = end_of(client, false);
    far = end_of(server, true);
    near->peer = far;
    far->peer = near;
    watch(near, EPOLLIN, EPOLL_CTL_ADD);
    watch(far, EPOLLIN, EPOLL_CTL_ADD);
}

/* The arrival time of bytes of the server, on one shared link; 0: its queue is full. */
static uint64_t due_by_link(size_t size, uint64_t now)
{
    uint64_t start = proxy.link_free_ns > now ? proxy.link_free_ns : now;
    double waiting = (double)(start - now) * proxy.bytes_per_ns;

    if (proxy.queue_bytes > 0 && waiting > proxy.queue_bytes)
        return 0;
    proxy.link_free_ns = start + (uint64_t)((double)size / proxy.bytes_per_ns);
    return proxy.link_free_ns + proxy.delay_ns;
}

static void take(struct end *end)
{
    struct chunk *chunk = malloc(sizeof(*chunk) + CHUNK_BYTES);
    uint64_t now = now_ns();
    ssize_t size;

    if (!chunk)
        fail("malloc");
    size = read(end->fd, chunk->data, CHUNK_BYTES);
    if (size <= 0) {
        free(chunk);
        if (size == 0 || (errno != EAGAIN && errno != EINTR))
            close_both(end);
        return;
    }
    chunk->to = end->peer;
    chunk->size = (size_t)size;
    chunk->sent = 0;
    chunk->due_ns = now + proxy.delay_ns;
    if (end->from_server && proxy.bytes_per_ns > 0)
        chunk->due_ns = due_by_link(chunk->size, now);
    if (!chunk->due_ns) {
        free(chunk);
        close_both(end);
        return;
    }
    end->peer->on_line++;
    put(&proxy.lines[end->from_server], chunk);
}

/* Writes arrived bytes; those that the other side does not accept yet wait for it. */
static void give(struct end *end)
{
    while (end->is_open && end->arrived.first) {
        struct chunk *chunk = end->arrived.first;
        ssize_t size = send(end->fd, chunk->data + chunk->sent,
                            chunk->size - chunk->sent, MSG_NOSIGNAL);

        if (size < 0) {
            if (errno != EAGAIN && errno != EINTR)
                close_both(end);
            else
                watch(end, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return;
        }
        chunk->sent += (size_t)size;
        if (chunk->sent == chunk->size)
            free(get(&end->arrived));
    }
}

/* Writes the due bytes of a line; returns when more are due, at most `next`. */
static uint64_t give_line(struct queue *line, uint64_t now, uint64_t next)
{
    while (line->first && line->first->due_ns <= now) {
        struct chunk *chunk = get(line);
        struct end *end = chunk->to;

        end->on_line--;
        if (!end->is_open) {
            free(chunk);
            continue;
        }
        put(&end->arrived, chunk);
        if (end->arrived.first == chunk) /* otherwise it waits for its socket */
            give(end);
    }
    return line->first && line->first->due_ns < next ? line->first->due_ns : next;
}

/* Writes all due bytes; returns the milliseconds until more are due. */
static int give_all(void)
{
    uint64_t now = now_ns(), next = now + 1000 * NS_PER_MS;
    int line;

    for (line = 0; line < 2; line++)
        next = give_line(&proxy.lines[line], now, next);
    return (int)((next - now) / NS_PER_MS) + (next - now < NS_PER_MS);
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(here);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) < 0 ||
        listen(fd, BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)&here, &size) < 0)
        fail("listen");
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    return fd;
}

static void configure(int argc, char **argv)
{
    char *colon = argc > 3 ? strrchr(argv[2], ':') : NULL;

    if (!colon) {
        fprintf(stderr, "delay_proxy PORT HOST:PORT ONE_WAY_MS [MB_A_S [QUEUE_KB]]\n");
        exit(2);
    }
    *colon = 0;
    proxy.server.sin_family = AF_INET;
    proxy.server.sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, argv[2], &proxy.server.sin_addr) != 1)
        fail(argv[2]);
    proxy.delay_ns = (uint64_t)(atof(argv[3]) * (double)NS_PER_MS);
    proxy.bytes_per_ns = argc > 4 ? atof(argv[4]) * 1e6 / NS_PER_S : 0;
    proxy.queue_bytes = argc > 5 ? atof(argv[5]) * 1e3 : 0;
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int listener, count, number;

    for (number = 0; number < 2; number++)
        proxy.lines[number].last = &proxy.lines[number].first;
    configure(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    proxy.poll = epoll_create1(EPOLL_CLOEXEC);
    listener = listen_on((uint16_t)atoi(argv[1]));
    if (proxy.poll < 0 || epoll_ctl(proxy.poll, EPOLL_CTL_ADD, listener, &event) < 0)
        fail("epoll");
    for (;;) {
        count = epoll_wait(proxy.poll, events, EVENTS, give_all());
        for (number = 0; number < count; number++) {
            struct end *end = events[number].data.ptr;

            if (!end) {
                accept_one(listener);
                continue;
            }
            if (end->is_open && events[number].events & EPOLLOUT) {
                watch(end, EPOLLIN, EPOLL_CTL_MOD);
                give(end);
            }
            if (end->is_open && events[number].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                take(end);
        }
        bury();
    }
}
