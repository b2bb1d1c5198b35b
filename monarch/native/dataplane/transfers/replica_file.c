/* replica_file.c - the file of a Replica in a Tier: created under a temporary name,
 * written, verified and published, or adopted from an earlier job. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/replica_table.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* replica_file_adopt - opens a Replica of an earlier job as the source, to check it. -ENOENT: none;
 * -EBADMSG: it was not published by an agent of this user. */
int replica_file_adopt(struct transfer *t, uid_t euid)
{
    struct stat st;
    t->step = MONARCH_STEP_OPEN;
    int fd = file_openat(t->file.dir, t->file.name, O_RDONLY | O_NONBLOCK | O_NOCTTY,
                         0);
    if (fd < 0)
        return fd == -ELOOP ? -EBADMSG : fd;
    t->read.fd = fd;
    if (fstat(fd, &st))
        return -errno;
    t->step = MONARCH_STEP_VERIFY;
    if (!S_ISREG(st.st_mode) || (st.st_mode & 07777) != 0400 || st.st_uid != euid ||
        (uint64_t)st.st_size != t->original.size)
        return -EBADMSG;
    t->file.ino = st.st_ino;
    return st.st_dev == t->file.dev ? 0 : -EXDEV;
}

/* create_unnamed - creates a file that no other process can open, truncate or replace,
 * and that the kernel removes if the agent is killed. */
static int create_unnamed(struct transfers *ts, struct transfer *t)
{
    if (!ts->links_by_path)
        return -EOPNOTSUPP;
    return file_openat(t->file.dir, ".", O_WRONLY | O_TMPFILE, 0400);
}

/* create_named - creates a temporary file on file systems without O_TMPFILE; an existing file of
 * that name was left by an agent of this user. */
static int create_named(struct transfer *t)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL;
    snprintf(t->file.temporary, sizeof(t->file.temporary), ".%s.%u.part", t->file.name,
             t->order.file);
    int fd = file_openat(t->file.dir, t->file.temporary, flags, 0400);
    if (fd == -EEXIST && unlinkat(t->file.dir, t->file.temporary, 0) == 0)
        fd = file_openat(t->file.dir, t->file.temporary, flags, 0400);
    t->file.named = fd >= 0;
    return fd;
}

/* replica_file_create - creates the temporary file, or the frame of a packed Tier. */
int replica_file_create(struct transfers *ts, struct transfer *t)
{
    if (packing_applies(ts, t))
        return packing_create(t);
    t->step = MONARCH_STEP_CREATE;
    int fd = create_unnamed(ts, t);
    if (fd < 0) /* the error differs between file systems: this one is reliable */
        fd = create_named(t);
    if (fd < 0)
        return fd;
    t->file.fd = fd;
    return 0;
}

/* replica_file_write - appends a chunk. If a named file was truncated meanwhile,
 * writing would leave a hole in a file of the right size. */
int replica_file_write(struct transfers *ts, struct transfer *t, const void *bytes,
                       size_t n)
{
    struct stat st;
    t->step = MONARCH_STEP_WRITE;
    if (t->frame)
        return packing_write(ts, t, bytes, n);
    if (t->file.named && fstat(t->file.fd, &st))
        return -errno;
    if (t->file.named && (uint64_t)st.st_size != t->read.offset)
        return -EBADMSG;
    return file_write(t->file.fd, bytes, n);
}

/* check_name - checks that the temporary name still refers to the file that was written. */
static int check_name(const struct transfer *t)
{
    struct stat st;
    if (fstatat(t->file.dir, t->file.temporary, &st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    return st.st_ino == t->file.ino && st.st_dev == t->file.dev ? 0 : -EBADMSG;
}

/* replica_file_verify - checks that the copy is complete, read-only and the file of its name, and
 * sets its mtime to that of the origin. */
int replica_file_verify(struct transfer *t)
{
    struct stat st;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      file_time(t->original.mtime_ns)};
    t->step = MONARCH_STEP_VERIFY;
    if (t->frame)
        return 0;
    if (futimens(t->file.fd, times) || fstat(t->file.fd, &st))
        return -errno;
    if ((uint64_t)st.st_size != t->original.size || (st.st_mode & 07777) != 0400)
        return -EBADMSG;
    if (st.st_dev != t->file.dev)
        return -EXDEV;
    t->file.ino = st.st_ino;
    return t->file.named ? check_name(t) : 0;
}

/* close_target - closes the copy; file systems may report errors of writing here. */
static int close_target(struct transfer *t)
{
    int fd = t->file.fd;
    t->file.fd = -1;
    if (close(fd) == 0 || errno == EINTR)
        return 0;
    t->step = MONARCH_STEP_WRITE;
    return -errno;
}

/* rename_named - renames without replacing. File systems without RENAME_NOREPLACE get a
 * link instead; transfer_end() removes the temporary name. */
static int rename_named(struct transfer *t)
{
    int rc = close_target(t);
    if (rc)
        return rc;
    if (syscall(SYS_renameat2, t->file.dir, t->file.temporary, t->file.dir,
                t->file.name, RENAME_NOREPLACE) == 0) {
        t->file.named = false;
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    return linkat(t->file.dir, t->file.temporary, t->file.dir, t->file.name, 0) ? -errno
                                                                                : 0;
}

static int link_by_path(const struct transfer *t)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", t->file.fd);
    bool linked = linkat(AT_FDCWD, path, t->file.dir, t->file.name,
                         AT_SYMLINK_FOLLOW) == 0;
    return linked ? 0 : -errno;
}

/* link_unnamed - links by the descriptor, in half the time of the path in /proc. Before Linux 6.10
 * only root may do that; others get ENOENT. */
static int link_unnamed(struct transfers *ts, const struct transfer *t)
{
    if (!atomic_load_explicit(&ts->links_by_fd, memory_order_relaxed))
        return link_by_path(t);
    if (linkat(t->file.fd, "", t->file.dir, t->file.name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOENT && errno != EPERM && errno != EINVAL)
        return -errno;
    int rc = link_by_path(t);
    if (!rc)
        atomic_store_explicit(&ts->links_by_fd, false, memory_order_relaxed);
    return rc;
}

static int name_unnamed(struct transfers *ts, struct transfer *t)
{
    int rc = link_unnamed(ts, t);
    if (rc)
        return rc;
    rc = close_target(t);
    if (rc)
        unlinkat(t->file.dir, t->file.name, 0);
    return rc;
}

static int give_name(struct transfers *ts, struct transfer *t)
{
    if (transfer_adopts(t) || t->partial) /* it has its name already */
        return 0;
    return t->file.named ? rename_named(t) : name_unnamed(ts, t);
}

/* compares - the Transfer has compared the origin's file with the Catalog. */
static bool compares(const struct transfer *t)
{
    return !transfer_is_local(t) && !(transfer_shares(t) && t->read.fd < 0);
}

/* make_ready - stores READY, if the order is still that of the File. A copy proves that the
 * Catalog agrees with the origin; an adopted Replica does not. */
static int make_ready(struct transfers *ts, struct transfer *t)
{
    uint32_t file = t->order.file;
    _Atomic uint32_t *words = replica_word(ts->job->catalog, 0);
    uint32_t fixed = STATE_WORD(REPLICA_READY, t->order.tier, t->from) |
                     (compares(t) ? STATE_CONFIRMED : 0);
    if (ts->table)
        return table_publish(ts->table, &t->order, fixed);
    if (!replica_state_end(words, file, t->order.word, fixed))
        return -ECANCELED;
    replica_state_wake(words, file);
    return 0;
}

/* replica_file_publish - inserts the inode, then creates the name, then stores READY: a program
 * that sees a later step finds the results of the earlier ones. */
int replica_file_publish(struct transfers *ts, struct transfer *t)
{
    uint32_t file = t->order.file, tier = t->order.tier;
    if (t->frame)
        return packing_publish(ts, t);
    int rc = job_add_inode(ts->job, tier, t->file.ino, file);
    if (rc)
        return rc;
    rc = give_name(ts, t);
    if (!rc) {
        rc = make_ready(ts, t);
        if (rc && !transfer_adopts(t))
            unlinkat(t->file.dir, t->file.name, 0);
    }
    if (rc)
        job_forget_inode(ts->job, tier, t->file.ino);
    return rc;
}
