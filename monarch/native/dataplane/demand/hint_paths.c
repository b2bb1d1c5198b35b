/* hint_paths.c - converts the paths of an order to File numbers. */
#include <string.h>
#include <sys/stat.h>

#include "dataplane/demand/demand_api.h"
#include "shared/catalog.h"

static const char *text_of(const struct catalog *cat, uint64_t place)
{
    return (const char *)cat + cat->strings + (place >> 16);
}

/* below - returns the rest of a path after a spelling of a root; NULL: it is not below it. */
static const char *below(const struct catalog *cat, const struct prefix *p,
                         const char *path, size_t n)
{
    size_t length = p->path & 0xffff;
    if (n <= length + 1 || path[length] != '/' ||
        memcmp(path, text_of(cat, p->path), length) != 0)
        return NULL;
    return path + length + 1;
}

/* file_of - returns the File that a root-relative path names, directly or as a link; or NONE32. */
static uint32_t file_of(const struct catalog *cat, uint32_t root, const char *rel,
                        size_t n)
{
    const struct index *ix = catalog_block(cat, root);
    int64_t found = index_find(ix, rel, n);
    if (found < 0)
        return NONE32;
    const struct entry *e = index_entry(ix, (uint32_t)found);
    if (S_ISLNK(index_attr(ix, e)->mode) && e->target != NONE32)
        e = index_entry(ix, e->target);
    if (!S_ISREG(index_attr(ix, e)->mode) || e->file == NONE32)
        return NONE32;
    return (uint32_t)file_number(&cat->roots[root], e);
}

static uint32_t find(const struct catalog *cat, const char *path, size_t n)
{
    const struct prefix *prefixes = (const struct prefix *)((const char *)cat +
                                                            cat->prefixes);
    for (uint32_t i = 0; i < cat->prefix_count; i++) {
        const char *rel = below(cat, &prefixes[i], path, n);
        uint32_t file = NONE32;
        if (rel)
            file = file_of(cat, prefixes[i].root, rel, n - (size_t)(rel - path));
        if (file != NONE32)
            return file;
    }
    return NONE32;
}

/* monarch_hint_files - converts absolute paths, each ended by NUL, to Files in their order; returns
 * their number. Paths of no File are left out. */
uint64_t monarch_hint_files(const void *catalog, const char *paths, size_t bytes,
                            uint32_t *files)
{
    const char *end = paths + bytes;
    uint64_t found = 0;
    while (paths < end) {
        size_t n = strnlen(paths, (size_t)(end - paths));
        files[found] = find(catalog, paths, n);
        found += files[found] != NONE32;
        paths += n + 1;
    }
    return found;
}
