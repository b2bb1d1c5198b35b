/* attach.h - the segments of the job as this process sees them. */
#ifndef MONARCH_ATTACH_H
#define MONARCH_ATTACH_H

#include <stdbool.h>
#include <stdatomic.h>

#include "shared/catalog.h"
#include "shared/counters.h"
#include "shared/replica_table.h"

enum {
    PREFIXES_MAX = 256, /* spellings of roots; a catalog with more is not used */
    RUN_BYTES_MAX = PATH_BYTES_MAX,
};

struct spelling { /* a prefix of the Namespace */
    const char *path;
    uint32_t bytes;
    uint32_t root;
};

struct board {
    const struct catalog *catalog;
    struct flags *flags;
    struct requests *requests;
    struct counters *counters;
    const struct inodes *inodes;
    uint32_t spelling_count;
    struct spelling spellings[PREFIXES_MAX]; /* longest first */
    size_t run_bytes;
    char run[RUN_BYTES_MAX]; /* the run directory */
    uint32_t run_gid;        /* group of the run directory, as this process sees it */
    bool injects;            /* the run directory holds a shim.so for new programs */
    bool elsewhere;          /* this process may see other mounts than the agent */
    const struct board
        *before; /* of an earlier agent, whose Replicas may be open; NULL */
};

const struct board *board_enter(void);
const struct board *board_marking(void);
void board_leave(void);
const struct board *board_left(void);

/* board_superseded - the agent of these segments has gone: nobody reads what is marked. */
static inline bool board_superseded(const struct board *b)
{
    return atomic_load_explicit((_Atomic uint32_t *)&b->flags->superseded,
                                memory_order_relaxed);
}

static inline const struct index *board_index(const struct board *b, uint32_t root)
{
    return (const struct index *)((const char *)b->catalog +
                                  b->catalog->roots[root].block);
}

#endif
