/* idle_packing.h - compresses pieces of frames on idle processors. */
#ifndef MONARCH_IDLE_PACKING_H
#define MONARCH_IDLE_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coder;
struct idle_packing;

/* Returns whether to stop waiting for a piece; called every few milliseconds. */
typedef bool idle_hurries(void *of);

struct idle_piece { /* to be compressed */
    const void *bytes;
    size_t n, room;
    idle_hurries *hurries;
    void *of;
};

struct idle_result {
    int64_t packed;  /* see monarch_coder_pack() */
    uint64_t cpu_ns; /* processor time */
};

int idle_packing_new(struct idle_packing **out);
void idle_packing_free(struct idle_packing *p);
uint32_t idle_packing_threads(const struct idle_packing *p);
bool idle_packing_run(struct idle_packing *p, struct coder **coder,
                      const struct idle_piece *piece, void *out,
                      struct idle_result *result);

#endif
