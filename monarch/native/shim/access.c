/* access.c - whether this process may read or execute, answered by the Catalog where the
 * scan has proved it. */
#include <errno.h>

#include "identity.h"
#include "next.h"
#include "shared/rights.h"
#include "stat.h"
#include "sys.h"

/* scanned_like - the scan could read what the agent can, and thus this process. */
static bool scanned_like(const struct index *ix)
{
    const struct segments *seg = attached_segments();
    return seg && ix->scan_rights == rights_mark(&seg->requests->agent);
}

/* grants - access() that the Catalog can answer: existence, and reading where the scan
 * has proved it for the user that this process runs as. */
static bool grants(int dirfd, const char *path, int mode, int flags)
{
    ROUTE(r);
    if ((mode & ~R_OK) != 0 || (flags & ~AT_EACCESS) != 0)
        return false;
    const struct entry *e = stat_look(dirfd, path, true, &r);
    if (!e || mode == F_OK)
        return e != NULL;
    return index_attr(r.ix, e)->readable && sys_geteuid() == r.ix->scan_euid &&
           sys_getuid() == r.ix->scan_euid && scanned_like(r.ix);
}

/* refused - the answer of access() to a name or descriptor; a Replica has other rights
 * than its File, which is asked for by the origin's path. */
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

int access(const char *path, int mode)
{
    return grants(AT_FDCWD, path, mode, 0)
               ? 0
               : refused(NEXT(access)(path, mode), AT_FDCWD, path, mode, 0);
}

int faccessat(int dirfd, const char *path, int mode, int flags)
{
    return grants(dirfd, path, mode, flags)
               ? 0
               : refused(NEXT(faccessat)(dirfd, path, mode, flags), dirfd, path, mode,
                         flags);
}

int eaccess(const char *path, int mode)
{
    return grants(AT_FDCWD, path, mode, 0)
               ? 0
               : refused(NEXT(eaccess)(path, mode), AT_FDCWD, path, mode, AT_EACCESS);
}

int euidaccess(const char *path, int mode)
{
    return grants(AT_FDCWD, path, mode, 0) ? 0
                                           : refused(NEXT(euidaccess)(path, mode),
                                                     AT_FDCWD, path, mode, AT_EACCESS);
}
