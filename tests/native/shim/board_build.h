/* board_build.h - builds the segments of a job from a real directory, for tests. */
#ifndef BOARD_BUILD_H
#define BOARD_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/layout.h"

enum { SPELLINGS_MAX = 16 };

struct plan { /* what to build */
    const char *run, *tier, *root;
    const char *spellings[SPELLINGS_MAX]; /* aliases beside the root itself */
    unsigned spelling_count;
    const char *filter; /* a program without staging */
    unsigned padding;   /* invented Entries, so that the Catalog is large */
    uint32_t cold_mode;
    uint64_t wait_max_bytes, wait_max_whole_bytes, timeout_ns;
    bool unstable;       /* inode numbers may change */
    uint32_t source;     /* of Files that are published; enum source */
    bool provisional;    /* the attributes are those of an earlier job */
    bool settled;        /* directories have not changed for long before the scan */
    const char *partial; /* a directory that contains names without an Entry */
    bool outline; /* no name below the root, and the flags have a table of changes */
};

struct built { /* the segments, mapped writable */
    struct catalog *catalog;
    struct flags *flags;
    struct requests *requests;
    struct counters *counters;
    struct inodes *inodes;
    struct index *index;
    struct catalog
        *outline; /* and its flags; NULL: the Catalog existed from the start */
    struct flags *changes;
};

struct built board_build(const struct plan *plan);
void board_scan(const struct plan *plan, struct built *b);
void board_serve(struct built *b);
void board_publish(const struct plan *plan, struct built *b, uint32_t file);
void replica_of(const struct plan *plan, const struct built *b, uint32_t file,
                char *out);
void state_set(struct built *b, uint32_t file, uint32_t word);
void beat(struct built *b);

#endif
