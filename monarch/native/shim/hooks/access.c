/* access.c - whether this process may read or execute a file, answered by the Catalog if the scan
 * has proved it. */
#include <errno.h>

#include "shim/names/identity.h"
#include "shim/base/next.h"
#include "shared/rights.h"
#include "shim/hooks/stat.h"
#include "shim/base/sys.h"

/* scanned_like - the scan could read the same files as the agent, and thus as this process. */
static bool scanned_like(const struct index *ix)
{
    const struct segments *seg = attached_segments();
    return seg && ix->scan_rights == rights_mark(&seg->requests->agent);
}

/* granted - answers access() from the Catalog: existence, and reading if the scan has proved it for
 * the user that this process runs as. Returns the result, or 1: it cannot. */
static int granted(int dirfd, const char *path, int mode, int flags)
{
    ROUTE(r);
    bool absent;
    if ((mode & ~R_OK) != 0 || (flags & ~AT_EACCESS) != 0)
        return 1;
    const struct entry *e = stat_look(dirfd, path, true, &r, &absent);
    if (absent) {
        errno = ENOENT;
        return -1;
    }
    if (!e || mode == F_OK)
        return !e;
    return !(index_attr(r.ix, e)->readable && sys_geteuid() == r.ix->scan_euid &&
             sys_getuid() == r.ix->scan_euid && scanned_like(r.ix));
}

/* refused - returns the result of access() for a name or descriptor; a Replica has other rights
 * than its File, so the origin's path is checked. */
static int refused(int result, int dirfd, const char *path, int mode, int flags)
{
    const struct segments *seg = result < 0 && errno == EACCES ? attach_for_marking()
                                                               : NULL;
    char origin[PATH_BYTES_MAX];
    uint64_t file;
    if (!seg || !path)
        return result;
    bool found = path[0] ? identity_origin_of_path(seg, dirfd, path, origin, &file)
                         : identity_origin_of_fd(attach_for_marking(), dirfd, origin,
                                                 &file);
    return found ? NEXT(faccessat)(AT_FDCWD, origin, mode, flags & AT_EACCESS) : result;
}

/* Asks the origin if the Catalog does not answer. */
#define ACCESS(dirfd, mode, flags, call)            \
    int result = granted(dirfd, path, mode, flags); \
    return result <= 0 ? result : refused(call, dirfd, path, mode, flags);

int access(const char *path, int mode)
{
    ACCESS(AT_FDCWD, mode, 0, NEXT(access)(path, mode))
}

int faccessat(int dirfd, const char *path, int mode, int flags)
{
    ACCESS(dirfd, mode, flags, NEXT(faccessat)(dirfd, path, mode, flags))
}

int eaccess(const char *path, int mode)
{
    ACCESS(AT_FDCWD, mode, AT_EACCESS, NEXT(eaccess)(path, mode))
}

int euidaccess(const char *path, int mode)
{
    ACCESS(AT_FDCWD, mode, AT_EACCESS, NEXT(euidaccess)(path, mode))
}
