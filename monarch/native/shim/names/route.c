/* route.c - finds the Entry of a path by text and Catalog alone, without the kernel. */
#include "shim/names/route.h"

#include <string.h>
#include <sys/stat.h>

enum { LINKS_MAX = 8 };

/* skip_slashes - skips every '/' and "./" between two components. */
static const char *skip_slashes(const char *p)
{
    for (;;) {
        if (p[0] == '/')
            p++;
        else if (p[0] == '.' && p[1] == '/')
            p += 2;
        else
            return p;
    }
}

/* match_slowly - returns the rest after the prefix of a path that may have more slashes than the
 * prefix, and single dots. */
static const char *match_slowly(const char *path, const struct spelling *s)
{
    const char *q = s->path, *end = s->path + s->bytes;
    while (q < end) {
        if (*path != *q)
            return NULL;
        path++;
        if (*q++ == '/' && (*path == '/' || *path == '.'))
            path = skip_slashes(path);
    }
    return *path == '/' || *path == 0 ? path : NULL;
}

/* match_prefix - returns the rest after the prefix of a path of `n` bytes, beginning with '/' or
 * empty; NULL: the path is not below it. Most paths differ from all prefixes by an ordinary
 * character, which is found by comparing words. */
static const char *match_prefix(const char *path, size_t n, const struct spelling *s)
{
    size_t both = n < s->bytes ? n : s->bytes, at = 0;
    uint64_t a, b;
    for (; at + sizeof(a) <= both; at += sizeof(a)) {
        memcpy(&a, path + at, sizeof(a));
        memcpy(&b, s->path + at, sizeof(b));
        if (a != b)
            break;
    }
    while (at < both && path[at] == s->path[at])
        at++;
    if (at == s->bytes && (path[at] == '/' || path[at] == 0))
        return path + at;
    return path[at] == '/' || path[at] == '.' ? match_slowly(path, s) : NULL;
}

/* plain_bytes - returns the length of a path that is already canonical, or -1. */
static long plain_bytes(const char *rel)
{
    const char *p = rel;
    if (*p == '.' || *p == '/')
        return -1;
    for (; *p; p++)
        if (*p == '/' && (p[1] == '/' || p[1] == '.' || p[1] == 0))
            return -1;
    return p - rel;
}

/* rewrites - takes a buffer for another form of the path; false: no memory. */
static bool rewrites(struct route *r)
{
    if (!r->buffer)
        r->buffer = scratch_take();
    return r->buffer != NULL;
}

/* append - appends one component to the canonical path in the buffer; false: too long. */
static bool append(struct route *r, const char *name, size_t n)
{
    size_t slash = r->rel_bytes > 0;
    if (r->rel_bytes + slash + n >= PATH_BYTES_MAX)
        return false;
    if (slash)
        r->buffer[r->rel_bytes++] = '/';
    memcpy(r->buffer + r->rel_bytes, name, n);
    r->rel_bytes += n;
    return true;
}

/* passable - the path is that of a catalogued directory, which is sure not to be a link
 * that leads elsewhere, and which the scan's user may search. */
static bool passable(const struct index *ix, const char *rel, size_t n)
{
    int64_t entry = index_find(ix, rel, n);
    if (entry < 0)
        return false;
    const struct attr *a = index_attr(ix, index_entry(ix, (uint32_t)entry));
    uint32_t owner = a->uid == ix->scan_euid ? S_IXUSR : S_IXUSR | S_IXGRP | S_IXOTH;
    return S_ISDIR(a->mode) && (a->mode & owner) == owner;
}

/* ascend - removes the last component, for ".."; false: it is not known to be a directory. */
static bool ascend(struct route *r)
{
    if (r->rel_bytes == 0 || !passable(r->ix, r->buffer, r->rel_bytes))
        return false;
    while (r->rel_bytes > 0 && r->buffer[r->rel_bytes - 1] != '/')
        r->rel_bytes--;
    if (r->rel_bytes > 0)
        r->rel_bytes--;
    return true;
}

/* leave - stores why a path leads out of the root that it begins below; returns false. */
static bool leave(struct route *r, enum counter why)
{
    r->leads_out = why;
    return false;
}

/* canonicalise - appends a path to the one in the buffer; false: it leaves the root, ascends over
 * something unknown, or is too long. */
static bool canonicalise(struct route *r, const char *p)
{
    r->directory_only = false;
    while (*p) {
        if (*p == '/') {
            r->directory_only = true;
            p++;
            continue;
        }
        size_t n = strcspn(p, "/");
        bool dots = p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.'));
        bool inside = r->rel_bytes > 0;
        if (dots ? n == 2 && !ascend(r) : !append(r, p, n))
            return inside && leave(r, dots ? COUNTER_origin_parent
                                           : COUNTER_origin_unlisted); /* too long */
        r->directory_only = dots;
        p += n;
    }
    r->rel = r->buffer;
    return true;
}

static bool find(struct route *r)
{
    r->hash = index_hash(r->rel, r->rel_bytes);
    int64_t entry = index_find_hashed(r->ix, r->rel, r->rel_bytes, r->hash);
    r->entry = entry < 0 ? NONE32 : (uint32_t)entry;
    return entry >= 0;
}

/* replace_head - replaces the first `n` bytes of the path by the path of another Entry. */
static bool replace_head(struct route *r, size_t n, const struct entry *by)
{
    size_t head = index_path_bytes(by), tail = r->rel_bytes - n;
    const char *rest = r->rel + n;
    if (head == 0) { /* the root itself: the rest loses its slash */
        rest++;
        tail--;
    }
    if (head + tail >= PATH_BYTES_MAX || !rewrites(r))
        return false;
    memmove(r->buffer + head, rest, tail);
    memcpy(r->buffer, index_path(r->ix, by), head);
    r->rel = r->buffer;
    r->rel_bytes = head + tail;
    return true;
}

/* follow_head - rewrites the path if one of its leading directories is a catalogued link; false:
 * none is. */
static bool follow_head(struct route *r)
{
    for (size_t n = r->rel_bytes; n-- > 0;) {
        if (r->rel[n] != '/')
            continue;
        int64_t number = index_find(r->ix, r->rel, n);
        if (number < 0)
            continue;
        const struct entry *e = index_entry(r->ix, (uint32_t)number);
        if (!S_ISLNK(index_attr(r->ix, e)->mode) || e->target == NONE32)
            return false;
        const struct entry *target = index_entry(r->ix, e->target);
        /* Names below the target of a link that leaves the root have this very path. */
        return target->path != e->path && replace_head(r, n, target);
    }
    return false;
}

static enum where look_up(struct route *r)
{
    for (int links = 0; links < LINKS_MAX; links++) {
        if (find(r))
            return ROUTE_FOUND;
        if (!follow_head(r))
            break;
    }
    return ROUTE_UNKNOWN;
}

static enum where route_rest(const char *rest, struct route *r)
{
    if (*rest == '/')
        rest++;
    long n = plain_bytes(rest);
    r->directory_only = false;
    r->rel = rest;
    r->rel_bytes = (size_t)n;
    if (__builtin_expect(n < 0, 0)) {
        r->rel_bytes = 0;
        if (!rewrites(r) || !canonicalise(r, rest))
            return ROUTE_OUTSIDE;
    } else if (n >= PATH_BYTES_MAX) {
        return ROUTE_OUTSIDE;
    }
    return look_up(r);
}

/* route_absolute - routes a path that begins with '/'. */
enum where route_absolute(const struct segments *seg, const char *path, struct route *r)
{
    size_t n = strlen(path);
    for (uint32_t i = 0; i < seg->spelling_count; i++) {
        const struct spelling *s = &seg->spellings[i];
        const char *rest = match_prefix(path, n, s);
        if (__builtin_expect(rest != NULL, 0)) {
            r->root = s->root;
            r->spelling = i;
            r->ix = segments_index(seg, s->root);
            return route_rest(rest, r);
        }
    }
    return ROUTE_OUTSIDE;
}

/* route_below - routes a relative path that starts at a catalogued directory. */
enum where route_below(const struct segments *seg, uint32_t root, uint32_t directory,
                       const char *path, struct route *r)
{
    r->root = root;
    r->spelling = NONE32;
    r->ix = segments_index(seg, root);
    const struct entry *e = index_entry(r->ix, directory);
    if (!rewrites(r))
        return ROUTE_OUTSIDE;
    r->rel_bytes = index_path_bytes(e);
    memcpy(r->buffer, index_path(r->ix, e), r->rel_bytes);
    return canonicalise(r, path) ? look_up(r) : ROUTE_OUTSIDE;
}

/* route_from - routes a relative path by the text of the working directory, which the kernel
 * reported: its components are real directories, so leading ".." ascend over them. */
enum where route_from(const struct segments *seg, const char *cwd, size_t cwd_bytes,
                      const char *path, struct route *r)
{
    SCRATCH(full);
    while (path[0] == '.' || path[0] == '/') {
        size_t n = strcspn(path, "/");
        bool up = n == 2 && path[1] == '.';
        if (n > 1 && !up)
            break;
        while (up && cwd_bytes > 0 && cwd[--cwd_bytes] != '/') {
        }
        path += n;
        while (*path == '/')
            path++;
    }
    size_t n = strlen(path);
    if (!full || cwd_bytes + 1 + n >= PATH_BYTES_MAX)
        return ROUTE_OUTSIDE;
    memcpy(full, cwd, cwd_bytes);
    full[cwd_bytes] = '/';
    memcpy(full + cwd_bytes + 1, path, n + 1);
    enum where where = route_absolute(seg, full, r);
    if (where != ROUTE_OUTSIDE && r->rel != r->buffer) {
        if (!rewrites(r))
            return ROUTE_OUTSIDE;
        memcpy(r->buffer, r->rel, r->rel_bytes);
        r->rel = r->buffer;
    }
    return where;
}

/* route_directory - finds the catalogued directory with this identity; false: none. A hop of one
 * root may be a directory of another. */
bool route_directory(const struct segments *seg, uint64_t dev, uint64_t ino,
                     uint32_t *root, uint32_t *entry)
{
    for (uint32_t i = 0; i < seg->catalog->root_count; i++) {
        const struct index *ix = segments_index(seg, i);
        int64_t found = index_find_directory(ix, dev, ino);
        if (found >= 0 && !index_is_hop(ix, index_entry(ix, (uint32_t)found))) {
            *root = i;
            *entry = (uint32_t)found;
            return true;
        }
    }
    return false;
}
