/* poller.c - a thread that polls sockets, and its wake-up by other threads. */
#include "dataplane/base/poller.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* poller_open - opens the descriptors; the caller calls poller_close() even after a failure. */
int poller_open(struct poller *p)
{
    p->wake_fd = -1;
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll < 0)
        return -errno;
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake_fd < 0)
        return -errno;
    return poller_add(p, p->wake_fd, EPOLLIN, POLLER_WAKE_KEY);
}

/* poller_start - runs a function in a new thread with this name (up to 15 bytes), which blocks all
 * signals: Python's main thread receives them. */
int poller_start(struct poller *p, const char *name, void *(*run)(void *),
                 void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&p->thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->started = rc == 0;
    if (p->started)
        pthread_setname_np(p->thread, name);
    return -rc;
}

/* poller_wake - wakes the thread; if the counter is full, the thread wakes anyway. */
void poller_wake(struct poller *p)
{
    const uint64_t one = 1;
    while (write(p->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

/* poller_stop - asks the thread to end and joins it. */
void poller_stop(struct poller *p)
{
    if (!p->started)
        return;
    atomic_store_explicit(&p->stopping, true, memory_order_release);
    poller_wake(p);
    pthread_join(p->thread, NULL);
    p->started = false;
}

/* poller_close - closes the descriptors of poller_open(). */
void poller_close(struct poller *p)
{
    if (p->epoll >= 0)
        close(p->epoll);
    if (p->wake_fd >= 0)
        close(p->wake_fd);
}

/* poller_add - adds a descriptor; closing the descriptor removes it. */
int poller_add(struct poller *p, int fd, uint32_t events, uint64_t key)
{
    struct epoll_event event = {.events = events, .data.u64 = key};
    return epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* poller_modify - changes the events of a descriptor; this needs no memory and cannot
 * fail. */
void poller_modify(struct poller *p, int fd, uint32_t events, uint64_t key)
{
    struct epoll_event event = {.events = events, .data.u64 = key};
    epoll_ctl(p->epoll, EPOLL_CTL_MOD, fd, &event);
}

/* poller_wait - waits for events; returns their number, 0 after `timeout_ms` (-1: no time-out). */
int poller_wait(struct poller *p, struct epoll_event events[POLLER_EVENTS_MAX],
                int timeout_ms)
{
    uint64_t count;
    int n = epoll_wait(p->epoll, events, POLLER_EVENTS_MAX, timeout_ms);
    for (int i = 0; i < n; i++)
        if (events[i].data.u64 == POLLER_WAKE_KEY &&
            read(p->wake_fd, &count, sizeof(count)) < 0)
            continue;
    return n < 0 ? 0 : n;
}

/* choose_congestion - replaces BBR, whose pacing costs a factor of 2.5 to 3.4 on local links. */
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

/* socket_prepare - makes a connected stream socket non-blocking, and sets TCP options if it is a
 * TCP socket. */
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
