/* segments.h - the shared-memory segments of a job, as this process has mapped them. */
#ifndef MONARCH_SEGMENTS_H
#define MONARCH_SEGMENTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shared/catalog.h"
#include "shared/changes.h"
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

struct segments {
    const struct catalog *catalog;
    struct flags *flags;
    struct requests *requests;
    struct counters *counters;
    const struct inodes *inodes; /* NULL in an outline: it has no Tier */
    struct changes *changes;     /* of an outline, the others have none */
    uint32_t spelling_count;
    struct spelling spellings[PREFIXES_MAX]; /* longest first */
    size_t run_bytes;
    char run[RUN_BYTES_MAX]; /* the run directory */
    uint32_t run_gid;        /* group of the run directory, as this process sees it */
    bool injects;            /* the run directory holds a shim.so for new programs */
    bool elsewhere;          /* this process may see other mounts than the agent */
    bool leaves;             /* links of a root lead outside */
    const struct segments
        *before; /* of an earlier agent, whose Replicas may be open; NULL */
    /* Results of mounts.c in this process. */
    _Atomic uint32_t grounds[PREFIXES_MAX];
    _Atomic uint64_t root_mounts[ROOTS_MAX];
};

bool segments_map(struct segments *seg);
bool segments_map_outline(struct segments *seg);
void segments_settle(const struct segments *seg);
void segments_unmap(struct segments *seg);
void segments_order(struct segments *seg);
const char *segments_path(const struct segments *seg, const char *name,
                          char out[PATH_BYTES_MAX]);

/* segments_superseded - the agent of these segments has ended: marks in them have no effect. */
static inline bool segments_superseded(const struct segments *seg)
{
    return atomic_load_explicit((_Atomic uint32_t *)&seg->flags->superseded,
                                memory_order_relaxed);
}

/* segments_catalog - whether the agent of these segments has published the Catalog. */
static inline enum catalog_state segments_catalog(const struct segments *seg)
{
    return (enum catalog_state)atomic_load_explicit(
        (_Atomic uint32_t *)&seg->requests->catalog, memory_order_relaxed);
}

static inline const struct index *segments_index(const struct segments *seg,
                                                 uint32_t root)
{
    return (const struct index *)((const char *)seg->catalog +
                                  seg->catalog->roots[root].block);
}

#endif
