/* mark.c - finds what a call is about to change, however it is spelled, and marks it. */
#include "mark.h"

#include <string.h>

#include "process.h"
#include "sys.h"

static void set(uint8_t *byte)
{
    atomic_store_explicit((_Atomic uint8_t *)byte, 1, memory_order_release);
    count(COUNTER_mutations, 1);
}

static void mark_number(const struct board *b, uint64_t number)
{
    if (number < b->flags->count)
        set(&b->flags->written[number]);
}

/* mark_root - the whole root passes through from now on. */
void mark_root(const struct board *b, uint32_t root)
{
    set(&b->flags->roots[root]);
}

/* mark_file - by its number in the job. */
void mark_file(const struct board *b, uint64_t file)
{
    mark_number(b, file);
}

/* mark_seen - the Entry, or its whole root, is not to be answered for. */
bool mark_seen(const struct board *b, uint32_t root, const struct index *ix,
               const struct entry *e)
{
    const struct root *at = &b->catalog->roots[root];
    bool directory = S_ISDIR(index_attr(ix, e)->mode);
    uint64_t number = (directory ? at->dir_base : at->file_base) + (uint64_t)e->file;
    if (number >= b->flags->count)
        return true;
    return atomic_load_explicit((_Atomic uint8_t *)&b->flags->roots[root],
                                memory_order_acquire) ||
           atomic_load_explicit((_Atomic uint8_t *)&b->flags->written[number],
                                memory_order_acquire);
}

/* mark_names - marks a file that has several names by its identity: the one that is
 * used may be outside of all roots, or in another one. */
static void mark_names(const struct board *b, uint64_t dev, uint64_t ino)
{
    for (uint32_t i = 0; i < b->catalog->root_count; i++) {
        const struct index *ix = board_index(b, i);
        for (uint32_t n = 0; n < ix->file_count; n++) {
            const struct entry *e = index_first(ix, n);
            if (e->ino == ino && index_attr(ix, e)->dev == dev)
                mark_number(b, (uint64_t)b->catalog->roots[i].file_base + n);
        }
    }
}

/* mark_parent - a name comes or goes in the directory that holds the routed path. */
static void mark_parent(const struct board *b, const struct route *r)
{
    size_t n = r->rel_bytes;
    while (n > 0 && r->rel[n - 1] != '/')
        n--;
    int64_t parent = r->rel_bytes ? index_find(r->ix, r->rel, n ? n - 1 : 0) : -1;
    if (parent >= 0 && index_entry(r->ix, parent)->file != NONE32)
        mark_number(b, (uint64_t)b->catalog->roots[r->root].dir_base +
                           index_entry(r->ix, parent)->file);
}

/* mark_entry - a File is marked by its number; a directory that is no longer what it
 * was takes its whole root with it. */
static void mark_entry(const struct board *b, const struct route *r, enum change change,
                       bool follow)
{
    const struct entry *e = route_entry(r);
    const struct root *root = &b->catalog->roots[r->root];
    bool link = S_ISLNK(index_attr(r->ix, e)->mode);
    if (link && e->target == NONE32)
        return;
    if (link)
        e = index_entry(r->ix, e->target);
    bool directory = S_ISDIR(index_attr(r->ix, e)->mode);
    if (!directory && e->file != NONE32)
        mark_number(b, (uint64_t)root->file_base + e->file);
    const struct attr *a = index_attr(r->ix, e);
    if (S_ISREG(a->mode) && a->nlink > 1 && b->catalog->root_count > 1)
        mark_names(b, a->dev, e->ino);
    if (!directory || change == CHANGE_BYTES)
        return;
    if (change != CHANGE_TIMES || (link && !follow))
        mark_root(b, r->root);
    else if (e->file != NONE32)
        mark_number(b, (uint64_t)root->dir_base + e->file);
}

/* mark_route - marks what a routed path names. */
void mark_route(const struct board *b, const struct route *r, enum where where,
                enum change change, bool follow)
{
    if (where == ROUTE_OUTSIDE) /* the route is not filled in */
        return;
    if (where == ROUTE_FOUND && change != CHANGE_CREATE)
        mark_entry(b, r, change, follow);
    if (where == ROUTE_UNKNOWN ? change == CHANGE_CREATE || change == CHANGE_NAME
                               : change == CHANGE_NAME)
        mark_parent(b, r);
}

/* on_a_root - the device may hold a dataset; all others need no second look. Files of an
 * overlay have devices of their own, which change as they are written to. */
static bool on_a_root(const struct board *b, uint64_t dev)
{
    for (uint32_t i = 0; i < b->catalog->root_count; i++) {
        const struct index *ix = board_index(b, i);
        uint64_t root = b->catalog->roots[i].dev;
        if (root == dev ||
            (ix->file_count > 0 && index_attr(ix, index_first(ix, 0))->dev != root))
            return true;
    }
    return false;
}

/* part - splits a path: the length of what holds its last name, slashes behind that
 * name left out of `end`. */
static size_t part(const char *path, size_t *end)
{
    size_t n = strlen(path), start;
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (start = n; start > 0 && path[start - 1] != '/'; start--) {
    }
    *end = n;
    return start;
}

/* stat_holder - the directory that the first `n` bytes of a path lead to. */
static bool stat_holder(int dirfd, const char *path, size_t n, struct stat *st)
{
    char holder[PATH_BYTES_MAX];
    if (n >= sizeof(holder))
        return false;
    memcpy(holder, n ? path : ".", n ? n : 1);
    holder[n ? n : 1] = 0;
    return sys_stat(dirfd, holder, st, 0) == 0;
}

/* mark_spelled - routes a path whose own text did not tell, by the identity of the
 * directory that holds its last component. */
static void mark_spelled(const struct board *b, int dirfd, const char *path,
                         enum change change)
{
    size_t end, start = part(path, &end);
    struct stat st;
    struct route r;
    uint32_t root, directory;
    if (!stat_holder(dirfd, path, start, &st) || !on_a_root(b, st.st_dev) ||
        !route_directory(b, st.st_dev, st.st_ino, &root, &directory))
        return;
    enum where where = route_below(b, root, directory, path + start, &r);
    mark_route(b, &r, where, change, false);
}

/* goes_through - a spelling of a root has a component of this name, in the directory
 * that holds it in the path as well. */
static bool goes_through(const struct spelling *s, int dirfd, const char *path,
                         size_t start, size_t n)
{
    const char *end = s->path + s->bytes;
    for (const char *at = s->path, *next; at < end; at = next) {
        const char *name = at + 1;
        next = memchr(name, '/', (size_t)(end - name));
        next = next ? next : end;
        struct stat ours, theirs;
        if ((size_t)(next - name) == n && memcmp(name, path + start, n) == 0 &&
            stat_holder(dirfd, path, start, &theirs) &&
            stat_holder(AT_FDCWD, s->path, (size_t)(name - s->path), &ours) &&
            ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
            return true;
    }
    return false;
}

/* mark_ancestors - a directory or link above a root is renamed, replaced or covered: so
 * is the root, however the path is spelled. */
static void mark_ancestors(const struct board *b, int dirfd, const char *path)
{
    size_t end, start = part(path, &end);
    for (uint32_t i = 0; i < b->spelling_count; i++)
        if (goes_through(&b->spellings[i], dirfd, path, start, end - start))
            mark_root(b, b->spellings[i].root);
}

/* mark_descriptor - marks what an open descriptor of the origin leads to: this sees
 * through every spelling, link and mount. */
void mark_descriptor(const struct board *b, int fd, enum change change)
{
    struct stat st;
    if (sys_fstat(fd, &st) < 0 || !on_a_root(b, st.st_dev))
        return;
    if (S_ISREG(st.st_mode) && st.st_nlink > 1)
        mark_names(b, st.st_dev, st.st_ino);
    char name[FD_NAME_BYTES], path[PATH_BYTES_MAX];
    sys_fd_name(name, fd);
    long bytes = sys_readlink(name, path, sizeof(path) - 1);
    if (bytes <= 0)
        return;
    path[bytes] = 0;
    struct route r;
    enum where where = route_at(b, AT_FDCWD, path, &r);
    mark_route(b, &r, where, change, true);
    if (where == ROUTE_OUTSIDE)
        mark_spelled(b, AT_FDCWD, path, change);
}

/* mark_followed - opens what the path leads to, without touching it, and marks that. */
static void mark_followed(const struct board *b, int dirfd, const char *path,
                          enum change change)
{
    int fd = sys_openat(dirfd, path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return;
    mark_descriptor(b, fd, change);
    sys_close(fd);
}

/* mark_tells - the route alone says which file is meant; a link that leaves its root may
 * well lead into another. */
bool mark_tells(const struct route *r, enum where where)
{
    if (where != ROUTE_FOUND)
        return false;
    const struct entry *e = route_entry(r);
    return !S_ISLNK(index_attr(r->ix, e)->mode) || e->target != NONE32;
}

/* mark_path - marks what the call is about to change, before it does. */
void mark_path(int dirfd, const char *path, enum change change, bool follow)
{
    const struct board *b = board_enter();
    struct route r;
    if (!b || !path || !path[0])
        return;
    enum where where = route_at(b, dirfd, path, &r);
    mark_route(b, &r, where, change, follow);
    if (follow ? mark_tells(&r, where) : where == ROUTE_FOUND)
        return;
    if (follow)
        mark_followed(b, dirfd, path, change);
    else
        mark_spelled(b, dirfd, path, change);
    if (where == ROUTE_OUTSIDE && change == CHANGE_NAME)
        mark_ancestors(b, dirfd, path);
}

/* mark_created - a name that the Catalog knows cannot be created while it is there; if
 * it could, then it was not what the Catalog says. */
void mark_created(int dirfd, const char *path, int result)
{
    const struct board *b = result == 0 ? board_enter() : NULL;
    struct route r;
    if (b && path && route_at(b, dirfd, path, &r) == ROUTE_FOUND)
        mark_route(b, &r, ROUTE_FOUND, CHANGE_NAME, false);
}
