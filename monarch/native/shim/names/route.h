/* route.h - finds the Entry of a path that a program names. */
#ifndef MONARCH_ROUTE_H
#define MONARCH_ROUTE_H

#include "shim/names/attached.h"
#include "shim/base/scratch.h"

enum where {
    ROUTE_OUTSIDE, /* not below a root, or led out of it: see route.leads_out */
    ROUTE_UNKNOWN, /* below a root, but not in the Catalog */
    ROUTE_FOUND,
};

struct route {
    const struct index *ix;
    uint32_t root;
    bool apart; /* it begins on another mount than that of the root */
    /* Why a path that begins below a root is ROUTE_OUTSIDE; COUNTER_COUNT: it does not. */
    enum counter leads_out;
    uint32_t spelling; /* the prefix that matched, NONE32 when none was needed */
    uint32_t entry;
    bool directory_only; /* the path ends in a slash or a dot: only a directory fits */
    const char *rel; /* canonical, below the root; in the caller's path or `buffer` */
    size_t rel_bytes;
    uint64_t hash;
    char *buffer; /* NULL until a path has to be rewritten */
};

/* Declares a route, which may take scratch memory until its scope ends. */
#define ROUTE(r) struct route r __attribute__((cleanup(route_end))) = {.buffer = NULL}

enum where route_absolute(const struct segments *seg, const char *path,
                          struct route *r);
enum where route_below(const struct segments *seg, uint32_t root, uint32_t directory,
                       const char *path, struct route *r);
enum where route_from(const struct segments *seg, const char *cwd, size_t cwd_bytes,
                      const char *path, struct route *r);
enum where route_at(const struct segments *seg, int dirfd, const char *path,
                    struct route *r);
bool route_directory(const struct segments *seg, uint64_t dev, uint64_t ino,
                     uint32_t *root, uint32_t *entry);

/* route_is_below - the text of the path begins below a root, wherever it leads. */
static inline bool route_is_below(const struct route *r, enum where where)
{
    return where != ROUTE_OUTSIDE || r->leads_out != COUNTER_COUNT;
}

static inline void route_end(struct route *r)
{
    scratch_leave(&r->buffer);
}

static inline const struct entry *route_entry(const struct route *r)
{
    return index_entry(r->ix, r->entry);
}

#endif
