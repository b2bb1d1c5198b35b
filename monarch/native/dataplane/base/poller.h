/* poller.h - a thread that polls sockets. Other threads wake it and pass it sockets of peers. */
#ifndef MONARCH_POLLER_H
#define MONARCH_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#define POLLER_WAKE_KEY UINT64_MAX /* the event key of poller_wake(), of no socket */

enum { POLLER_EVENTS_MAX = 64 };

struct poller {
    int epoll, wake_fd;
    bool started;
    atomic_bool stopping;
    pthread_t thread;
};

struct peer_command { /* fd -1: close the connections of the peer */
    int fd;
    uint32_t peer;
};

enum { PEER_COMMANDS_MAX = 1024 };

int poller_open(struct poller *p);
int poller_start(struct poller *p, const char *name, void *(*run)(void *),
                 void *argument);
void poller_wake(struct poller *p);
void poller_stop(struct poller *p);
void poller_close(struct poller *p);
int poller_add(struct poller *p, int fd, uint32_t events, uint64_t key);
void poller_modify(struct poller *p, int fd, uint32_t events, uint64_t key);
int poller_wait(struct poller *p, struct epoll_event events[POLLER_EVENTS_MAX],
                int timeout_ms);
int socket_prepare(int fd);

static inline bool poller_stopping(const struct poller *p)
{
    return atomic_load_explicit(&p->stopping, memory_order_acquire);
}

#endif
