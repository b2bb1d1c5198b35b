/* at.c - the part of routing that asks the kernel: working directory, dirfd, root check. */
#include <errno.h>

#include "route.h"
#include "sys.h"

static enum where from_cwd(const struct board *b, const char *path, struct route *r)
{
    SCRATCH(cwd);
    long n = cwd ? sys_call(SYS_getcwd, (long)cwd, PATH_BYTES_MAX, 0, 0, 0) : 0;
    if (n < 2 || cwd[0] != '/') /* deleted or unreachable directories say so here */
        return ROUTE_OUTSIDE;
    return route_from(b, cwd, n == 2 ? 0 : (size_t)n - 1, path, r);
}

static enum where from_directory(const struct board *b, int dirfd, const char *path,
                                 struct route *r)
{
    struct stat st;
    uint32_t root, directory;
    if (sys_fstat(dirfd, &st) < 0 || !S_ISDIR(st.st_mode) ||
        !route_directory(b, st.st_dev, st.st_ino, &root, &directory))
        return ROUTE_OUTSIDE;
    return route_below(b, root, directory, path, r);
}

/* route_at - routes what a program gives to an *at() call; nothing is remembered, since
 * threads may change directories in ways that nobody sees. Headers promise that paths
 * are not NULL, so that this is where it is found out. */
enum where route_at(const struct board *b, int dirfd, const char *path, struct route *r)
{
    enum where where = ROUTE_OUTSIDE;
    if (!path)
        return ROUTE_OUTSIDE;
    if (path[0] == '/')
        where = route_absolute(b, path, r);
    else if (path[0] && dirfd == AT_FDCWD)
        where = from_cwd(b, path, r);
    else if (path[0])
        where = from_directory(b, dirfd, path, r);
    if (where != ROUTE_OUTSIDE && r->spelling != NONE32 &&
        !board_spelled(b, r->spelling))
        return ROUTE_OUTSIDE;
    return where;
}
