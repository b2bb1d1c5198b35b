/* replica_state.h - the state words of Files, and the threads that watch them. */
#ifndef MONARCH_REPLICA_STATE_H
#define MONARCH_REPLICA_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/base/export.h"

struct catalog;
struct poller;

struct state_watch { /* of a polling thread; see state_watch_arm() */
    struct state_watch *next;
    const _Atomic uint32_t *words;
    struct poller *poller;
    atomic_bool armed;
};

bool replica_state_change(_Atomic uint32_t *words, uint32_t file, uint32_t *seen,
                          uint32_t next, bool wakes);
void replica_state_wake(_Atomic uint32_t *words, uint32_t file);
bool replica_state_end(_Atomic uint32_t *words, uint32_t file, uint32_t staging,
                       uint32_t fixed);
void replica_state_set_busy(const struct catalog *cat, uint32_t file, bool busy);

void replica_watches_wake(const struct catalog *cat);
void state_watch_add(struct state_watch *w, const struct catalog *cat,
                     struct poller *poller);
void state_watch_remove(struct state_watch *w);
bool state_watch_arm(struct state_watch *w);

/* For Python: the words that other processes wait for. */
MONARCH_API int monarch_state_change(uint32_t *words, uint32_t file, uint32_t seen,
                                     uint32_t next, int wakes);
struct monarch_rule { /* the state words to change, and their new fixed part */
    uint32_t mask, from, to;
};

MONARCH_API uint64_t monarch_states_change(uint32_t *words, const uint64_t *files,
                                           uint64_t n, const struct monarch_rule *rule);
MONARCH_API void monarch_states_confirm(uint32_t *words, const uint64_t *files,
                                        uint64_t n);
MONARCH_API void monarch_marks_set(uint8_t *marks, const uint64_t *numbers,
                                   const uint8_t *bits, size_t n);

#endif
