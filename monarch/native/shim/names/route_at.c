/* route_at.c - the part of routing that asks the kernel: working directory, dirfd, root check. */
#include <errno.h>
#include <string.h>

#include "shim/names/mounts.h"
#include "shim/base/object.h"
#include "shim/names/route.h"
#include "shim/base/sys.h"

/* from_directory - routes by the identity of the directory that the path is relative to. */
static enum where from_directory(const struct segments *seg, int dirfd,
                                 const char *path, struct route *r)
{
    struct stat st;
    uint32_t root, directory;
    bool found = dirfd == AT_FDCWD ? object_at(dirfd, ".", true, &st)
                                   : object_of(dirfd, &st);
    if (!found || !S_ISDIR(st.st_mode) ||
        !route_directory(seg, st.st_dev, st.st_ino, &root, &directory))
        return ROUTE_OUTSIDE;
    r->apart = mounts_apart(seg, root, dirfd, "");
    return route_below(seg, root, directory, path, r);
}

static enum where from_cwd(const struct segments *seg, const char *path,
                           struct route *r)
{
    SCRATCH(cwd);
    long n = cwd ? sys_call(SYS_getcwd, (long)cwd, PATH_BYTES_MAX, 0, 0, 0) : 0;
    if (n < 2 || cwd[0] != '/') /* deleted or unreachable directories show here */
        return ROUTE_OUTSIDE;
    enum where where = route_from(seg, cwd, n == 2 ? 0 : (size_t)n - 1, path, r);
    /* The working directory may be one to which a link leads. */
    if (where == ROUTE_OUTSIDE && seg->leaves &&
        (size_t)n + strlen(path) < PATH_BYTES_MAX)
        return from_directory(seg, AT_FDCWD, path, r);
    /* A mount on top of the working directory does not show in its path. */
    if (where != ROUTE_OUTSIDE)
        r->apart = mounts_apart(seg, r->root, AT_FDCWD, "");
    return where;
}

/* passes_parent - a component of the path begins with "..". */
static bool passes_parent(const char *path)
{
    const char *at = strchr(path, '.');
    while (at && (at[1] != '.' || (at > path && at[-1] != '/')))
        at = strchr(at + 1, '.');
    return at != NULL;
}

/* root_below - routes the rest of a path that leads to this root with its first `n` bytes,
 * according to the kernel. */
static enum where root_below(const struct segments *seg, uint32_t number, int dirfd,
                             const char *path, size_t n, struct route *r)
{
    const struct root *root = &seg->catalog->roots[number];
    SCRATCH(head);
    struct stat st;
    if (!head || n >= PATH_BYTES_MAX)
        return ROUTE_OUTSIDE;
    memcpy(head, path, n);
    head[n] = 0;
    if (!object_at(dirfd, head, true, &st) || st.st_dev != root->dev ||
        st.st_ino != root->ino)
        return ROUTE_OUTSIDE;
    r->apart = mounts_apart(seg, number, dirfd, head);
    return route_below(seg, number, 0, path + n, r);
}

/* from_parent - routes a path that ascends before it reaches a root, as in programs that look for
 * their data beside themselves: the kernel resolves a component with the name of the root. */
static enum where from_parent(const struct segments *seg, int dirfd, const char *path,
                              struct route *r)
{
    for (uint32_t i = 0; i < seg->spelling_count; i++) {
        const struct spelling *s = &seg->spellings[i];
        const char *name = memrchr(s->path, '/', s->bytes);
        size_t n = (size_t)(s->path + s->bytes - name);
        const char *at = strstr(path, "..");
        for (; at; at = strchr(at + 1, '/')) {
            if (strncmp(at, name, n) != 0 || (at[n] != '/' && at[n] != 0))
                continue;
            enum where where = root_below(seg, s->root, dirfd, path,
                                          (size_t)(at - path) + n, r);
            if (where != ROUTE_OUTSIDE)
                return where;
        }
    }
    return ROUTE_OUTSIDE;
}

/* passes_link - a name of the routed path is a link. */
static bool passes_link(const struct route *r)
{
    for (size_t n = r->rel_bytes; n > 0; n--) {
        if (n < r->rel_bytes && r->rel[n] != '/')
            continue;
        int64_t found = index_find(r->ix, r->rel, n);
        if (found >= 0 &&
            S_ISLNK(index_attr(r->ix, index_entry(r->ix, (uint32_t)found))->mode))
            return true;
    }
    return false;
}

static bool is(const struct route *r, uint32_t entry, const struct stat *st)
{
    const struct entry *e = index_entry(r->ix, entry);
    return st->st_ino == e->ino && st->st_dev == index_attr(r->ix, e)->dev;
}

/* proved - the kernel finds the Entry under this name and, if it is a link, its target. */
static bool proved(int dirfd, const char *path, const struct route *r)
{
    struct stat st;
    if (sys_stat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !is(r, r->entry, &st))
        return false;
    uint32_t target = route_entry(r)->target;
    return !S_ISLNK(st.st_mode) || target == NONE32 ||
           (sys_stat(dirfd, path, &st, 0) == 0 && is(r, target, &st));
}

/* covered - reports that the name leads elsewhere in this process. */
static enum where covered(struct route *r)
{
    r->leads_out = COUNTER_origin_covered;
    return ROUTE_OUTSIDE;
}

/* route_at - routes the path of an *at() call; nothing is cached, because threads may change
 * directories by calls that are not intercepted. Headers promise that paths are not NULL, so this
 * function checks it. */
enum where route_at(const struct segments *seg, int dirfd, const char *path,
                    struct route *r)
{
    enum where where = ROUTE_OUTSIDE;
    if (!path)
        return ROUTE_OUTSIDE;
    r->apart = false;
    r->leads_out = COUNTER_COUNT;
    if (path[0] == '/')
        where = route_absolute(seg, path, r);
    else if (path[0] && dirfd == AT_FDCWD)
        where = from_cwd(seg, path, r);
    else if (path[0])
        where = from_directory(seg, dirfd, path, r);
    if (where == ROUTE_OUTSIDE && passes_parent(path))
        where = from_parent(seg, dirfd, path, r);
    if (where == ROUTE_OUTSIDE)
        return where;
    r->leads_out = COUNTER_COUNT;
    enum ground ground = r->spelling != NONE32 ? mounts_ground(seg, r->spelling)
                                               : GROUND_SAME;
    if (__builtin_expect(ground == GROUND_SAME && !r->apart, 1))
        return where;
    if (ground == GROUND_OTHER || ground == GROUND_UNKNOWN)
        return covered(r);
    bool doubtful = ground == GROUND_DOUBTFUL || r->apart || passes_link(r);
    if (where == ROUTE_UNKNOWN || !doubtful)
        return where;
    return proved(dirfd, path, r) ? where : covered(r);
}
