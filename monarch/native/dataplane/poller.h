/* poller.h - a thread that waits for sockets, and the bell by which others wake it. */
#ifndef MONARCH_LOOP_H
#define MONARCH_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#define LOOP_BELL UINT64_MAX /* the key of the bell among those of sockets */

enum { LOOP_EVENTS_MAX = 64 };

struct loop {
    int epoll, bell;
    bool started;
    atomic_bool stopping;
    pthread_t thread;
};

int loop_open(struct loop *l);
int loop_start(struct loop *l, void *(*run)(void *), void *owner);
void loop_ring(struct loop *l);
void loop_stop(struct loop *l);
void loop_close(struct loop *l);
int loop_watch(struct loop *l, int fd, uint32_t events, uint64_t key);
void loop_change(struct loop *l, int fd, uint32_t events, uint64_t key);
int loop_wait(struct loop *l, struct epoll_event events[LOOP_EVENTS_MAX],
              int patience_ms);
int socket_prepare(int fd);

static inline bool loop_stops(const struct loop *l)
{
    return atomic_load_explicit(&l->stopping, memory_order_acquire);
}

#endif
