/* board.h - what a launcher reads and writes of the agent's shared memory. */
#ifndef MONARCH_BOARD_H
#define MONARCH_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/layout.h"

enum { SLICE_MS = 100 };

struct board {
    const struct requests *requests; /* NULL = not mapped */
    struct counters *counters;
};

/* How long the heartbeat has stood still, in slices that we have watched: after a
 * suspension of the whole job its time says nothing. */
struct pulse {
    uint64_t beat;
    unsigned still;
};

int board_map(struct board *board, int run_fd);
void board_unmap(struct board *board);
void board_register(const struct board *board, const char *program);
bool board_has_programs(const struct board *board);
void board_supersede(int run_fd);
uint32_t board_agent_state(const struct board *board);
void board_wait(const struct board *board, uint32_t state);
bool pulse_suspicious(struct pulse *pulse, const struct board *board);
bool pulse_lost(const struct pulse *pulse);

#endif
