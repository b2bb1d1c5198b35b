/* splits.c - decides which opens with O_TRUNC are split into an open, a look at the opened file,
 * and a truncation.
 *
 * One look then replaces two. An open that truncates needs one before it, because the process may
 * be killed before it looks at the descriptor, and one after it, because the path may lead
 * elsewhere by then; and a look by path costs half of an open.
 *
 * Servers may copy a whole file for an open without O_TRUNC, or refuse it. So outside of
 * datasets an open is split only if the last file that was truncated by a path in the same
 * directory lies on a disk of this machine or in memory. This is a guess about the path, by
 * its text: a link may lead elsewhere, and another file system may have been mounted. A
 * wrong guess costs a request, and is forgotten. */
#include "shim/serving/splits.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "shared/index.h"
#include "shim/base/object.h"
#include "shim/base/sys.h"

enum {
    DIRECTORIES = 64,
    GET_SEALS = 1034, /* F_GET_SEALS, linux/fcntl.h */
};

/* The directories by a hash, 0: none, and the devices of their files. Two threads may mix
 * the two, which makes one more wrong guess. */
static struct {
    _Atomic uint64_t parent, dev;
} known[DIRECTORIES];

/* splits_flags - an open and a truncation by the descriptor can replace one with these flags. */
bool splits_flags(int flags)
{
    int mode = flags & O_ACCMODE;
    return (flags & O_TRUNC) && !(flags & (O_EXCL | O_DIRECTORY)) &&
           (mode == O_WRONLY || mode == O_RDWR);
}

/* splits_parent - returns a number for the directory in which a path names a file; 0: the path is
 * no clue to the file that it leads to. */
uint64_t splits_parent(int dirfd, const char *path)
{
    const char *name = strrchr(path, '/');
    size_t n = name ? (size_t)(name - path) : 0;
    uint64_t start = path[0] == '/' ? 0 : (uint64_t)(uint32_t)dirfd << 32;
    return object_in_proc(path) ? 0 : index_hash(path, n) ^ start;
}

/* splits_below - opens in this directory are split. */
bool splits_below(uint64_t parent)
{
    return parent && parent == atomic_load_explicit(&known[parent % DIRECTORIES].parent,
                                                    memory_order_relaxed);
}

/* splits_forget - opens in this directory are not split any more. */
void splits_forget(uint64_t parent)
{
    if (splits_below(parent))
        atomic_store_explicit(&known[parent % DIRECTORIES].parent, 0,
                              memory_order_relaxed);
}

/* is_local - no server is asked for the file: its device is a disk, or it lies in memory, because
 * the kernel keeps seals for such files only. */
static bool is_local(int fd, const struct stat *st)
{
    return major(st->st_dev) || sys_call(SYS_fcntl, fd, GET_SEALS, 0, 0, 0) >= 0;
}

/* splits_learn - stores that an open by a path in this directory led to this regular file. */
void splits_learn(uint64_t parent, int fd, const struct stat *st)
{
    bool below = splits_below(parent);
    _Atomic uint64_t *dev = &known[parent % DIRECTORIES].dev;
    if (!parent ||
        (below && atomic_load_explicit(dev, memory_order_relaxed) == st->st_dev))
        return;
    bool local = is_local(fd, st);
    if (!local && !below)
        return;
    atomic_store_explicit(dev, st->st_dev, memory_order_relaxed);
    atomic_store_explicit(&known[parent % DIRECTORIES].parent, local ? parent : 0,
                          memory_order_relaxed);
}
