/* poller.c - a thread that waits for sockets, and the bell by which others wake it. */
#include "dataplane/poller.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* loop_open - makes what can be waited for; after a failure too, loop_close() is due. */
int loop_open(struct loop *l)
{
    l->bell = -1;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0)
        return -errno;
    l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->bell < 0)
        return -errno;
    return loop_watch(l, l->bell, EPOLLIN, LOOP_BELL);
}

/* loop_start - runs a function in the thread, which takes no signal: those are for
 * Python's main thread. */
int loop_start(struct loop *l, void *(*run)(void *), void *owner)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&l->thread, NULL, run, owner);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->started = rc == 0;
    return -rc;
}

/* loop_ring - wakes the thread; a full bell rings already. */
void loop_ring(struct loop *l)
{
    const uint64_t one = 1;
    while (write(l->bell, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

/* loop_stop - waits until the thread has seen that it is to end. */
void loop_stop(struct loop *l)
{
    if (!l->started)
        return;
    atomic_store_explicit(&l->stopping, true, memory_order_release);
    loop_ring(l);
    pthread_join(l->thread, NULL);
    l->started = false;
}

/* loop_close - releases what loop_open() has made. */
void loop_close(struct loop *l)
{
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->bell >= 0)
        close(l->bell);
}

/* loop_watch - adds a descriptor, which is taken out again by closing it. */
int loop_watch(struct loop *l, int fd, uint32_t events, uint64_t key)
{
    struct epoll_event event = {.events = events, .data.u64 = key};
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* loop_change - waits for something else from now on; there is room for that always. */
void loop_change(struct loop *l, int fd, uint32_t events, uint64_t key)
{
    struct epoll_event event = {.events = events, .data.u64 = key};
    epoll_ctl(l->epoll, EPOLL_CTL_MOD, fd, &event);
}

/* loop_wait - the number of events, 0 after `patience_ms` (-1: for ever). */
int loop_wait(struct loop *l, struct epoll_event events[LOOP_EVENTS_MAX],
              int patience_ms)
{
    uint64_t rings;
    int n = epoll_wait(l->epoll, events, LOOP_EVENTS_MAX, patience_ms);
    for (int i = 0; i < n; i++)
        if (events[i].data.u64 == LOOP_BELL && read(l->bell, &rings, sizeof(rings)) < 0)
            continue;
    return n < 0 ? 0 : n;
}

/* choose_congestion - BBR paces what a node's own wires could carry at once. */
static void choose_congestion(int fd)
{
    static const char *const better[] = {"cubic", "reno"};
    char name[16] = "";
    socklen_t n = sizeof(name) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n) ||
        strncmp(name, "bbr", 3) != 0)
        return;
    for (int i = 0; i < 2; i++)
        if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, better[i], strlen(better[i])))
            return;
}

/* socket_prepare - makes a connected socket fit for a loop; what only TCP knows is left
 * out for others. */
int socket_prepare(int fd)
{
    const int one = 1;
    int kind = 0;
    socklen_t n = sizeof(kind);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &n))
        return -errno;
    if (kind != SOCK_STREAM)
        return -EPROTOTYPE;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
        fcntl(fd, F_SETFD, FD_CLOEXEC))
        return -errno;
    if (!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
        choose_congestion(fd);
    return 0;
}
