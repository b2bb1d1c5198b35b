/* changes.h - what programs change before there is a Catalog that knows it. */
#ifndef MONARCH_CHANGES_H
#define MONARCH_CHANGES_H

#include <stdbool.h>

#include "index.h"

struct change_seen { /* one change, as a program has seen it */
    uint64_t dev, ino;
    uint64_t below; /* a bit per root below which its path lies */
    uint32_t kinds; /* CHANGED_... */
};

/* changes_of - the table in the flags of an outline; NULL: these are other flags. */
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
