/* origin_posix.c - opening a File at its origin, a POSIX file system, and comparing it
 * with the Catalog. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/syscalls.h"
#include "dataplane/transfer.h"
#include "shared/catalog.h"

/* is_time - compares the parts: nanoseconds of times after 2262 overflow 64 bits. */
static bool is_time(struct timespec t, int64_t ns)
{
    struct timespec expected = file_time(ns);
    return t.tv_sec == expected.tv_sec && t.tv_nsec == expected.tv_nsec;
}

/* path_of - the absolute path of a File's first Entry, in a buffer of PATH_MAX
 * bytes. */
static int path_of(const struct engine *e, const struct transfer *t, char *out)
{
    const struct catalog *cat = e->catalog;
    const struct root *root = &cat->roots[t->root];
    const struct index *ix = catalog_block(cat, t->root);
    const struct entry *entry = index_first(ix, t->order.file - root->file_base);
    size_t n = root->path & 0xffff, rel = index_path_bytes(entry);
    if (n + 1 + rel >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(out, (const char *)cat + cat->strings + (root->path >> 16), n);
    out[n] = '/';
    memcpy(out + n + 1, index_path(ix, entry), rel);
    out[n + 1 + rel] = 0;
    return 0;
}

/* origin_unchanged - -ESTALE unless the open file has the identity in the Catalog. */
int origin_unchanged(struct transfer *t)
{
    struct stat st;
    t->step = MONARCH_STEP_STAT;
    if (fstat(t->source, &st))
        return -errno;
    bool same = S_ISREG(st.st_mode) && st.st_dev == t->dev && st.st_ino == t->ino &&
                (uint64_t)st.st_size == t->size && is_time(st.st_mtim, t->mtime_ns) &&
                is_time(st.st_ctim, t->ctime_ns);
    return same ? 0 : -ESTALE;
}

/* origin_open - opens the source: O_NONBLOCK in case it is a FIFO by now, and O_NOATIME
 * where the kernel permits it. */
int origin_open(struct engine *e, struct transfer *t)
{
    char path[PATH_MAX];
    t->step = MONARCH_STEP_OPEN;
    int rc = path_of(e, t, path);
    if (rc)
        return rc;
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
    bool quiet = e->euid == 0 || e->euid == t->owner;
    int fd = file_openat(AT_FDCWD, path, flags | (quiet ? O_NOATIME : 0), 0);
    if (fd == -EPERM && quiet)
        fd = file_openat(AT_FDCWD, path, flags, 0);
    if (fd < 0)
        return fd;
    t->source = fd;
    return origin_unchanged(t);
}
