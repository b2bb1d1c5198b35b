/* changes.h - the table of changes that programs make before the Catalog exists. */
#ifndef MONARCH_CHANGES_H
#define MONARCH_CHANGES_H

#include <stdbool.h>

#include "index.h"

/* Kinds of changes to a file or directory before the Catalog exists; of a directory: to the names
 * in it, or to itself. */
enum {
    CHANGED_BYTES = 1,
    CHANGED_RIGHTS = 2, /* mode, owner, attributes */
    CHANGED_TIMES = 4,
    CHANGED_NAME = 8,   /* one of its names was removed, or leads elsewhere */
    CHANGED_FREED = 16, /* its last name was removed */
};

struct changed {    /* claimed by compare-and-swap on ino, complete when dev is set */
    uint64_t ino;   /* 0 = free */
    uint64_t dev;   /* 0 = not written yet */
    uint64_t below; /* a bit per root below which its path lay */
    uint32_t kinds; /* CHANGED_... */
    uint32_t reserved;
};

struct changes {
    uint32_t revision; /* incremented after each change of the table */
    uint32_t reserved;
    struct changed slots[CHANGES_MAX]; /* open addressing, no slot becomes free again */
};

_Static_assert(sizeof(struct changed) == 32, "changed");

struct change_seen { /* one change, as a program observed it */
    uint64_t dev, ino;
    uint64_t below; /* a bit per root below which its path lies */
    uint32_t kinds; /* CHANGED_... */
};

/* changes_of - returns the table in the flags of an outline; NULL: these are other flags. */
static inline struct changes *changes_of(struct flags *flags)
{
    uint64_t at = flags->changes, bytes = flags->seg.length;
    bool fits = at >= sizeof(*flags) + flags->count && at % 8 == 0 &&
                bytes >= sizeof(struct changes) && at <= bytes - sizeof(struct changes);
    return fits ? (struct changes *)((char *)flags + at) : NULL;
}

bool changes_add(struct changes *table, const struct change_seen *seen);
bool changes_near(const struct catalog *outline, uint32_t root, uint64_t dev);
void changes_apply(const struct catalog *outline, struct flags *from,
                   const struct catalog *cat, struct flags *to);

#endif
