/* replica_file.c - the file in the Tier: created under a temporary name, checked, published. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/publish.h"
#include "dataplane/transfer.h"
#include "shared/replica_table.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* create_unnamed - a file that nobody else can open, cut or replace, and that is gone when
 * its last descriptor is: nothing is left of an agent that was killed. */
static int create_unnamed(struct engine *e, struct transfer *t)
{
    if (!e->links_descriptors)
        return -EOPNOTSUPP;
    return file_openat(t->tier, ".", O_WRONLY | O_TMPFILE, 0400);
}

/* create_named - a temporary file for file systems that must give it a name; a leftover
 * of that name is our own. */
static int create_named(struct transfer *t)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL;
    snprintf(t->temporary, sizeof(t->temporary), ".%s.%u.part", t->name, t->order.file);
    int fd = file_openat(t->tier, t->temporary, flags, 0400);
    if (fd == -EEXIST && unlinkat(t->tier, t->temporary, 0) == 0)
        fd = file_openat(t->tier, t->temporary, flags, 0400);
    t->named = fd >= 0;
    return fd;
}

/* copy_create - creates the temporary file. */
int copy_create(struct engine *e, struct transfer *t)
{
    t->step = MONARCH_STEP_CREATE;
    int fd = create_unnamed(e, t);
    if (fd < 0) /* file systems refuse it in many words; a name tells the real error */
        fd = create_named(t);
    if (fd < 0)
        return fd;
    t->target = fd;
    return 0;
}

/* copy_write - appends a chunk. A named file could have been cut meanwhile: writing on
 * would leave a hole in a file of the right size. */
int copy_write(struct transfer *t, const void *bytes, size_t n)
{
    struct stat st;
    t->step = MONARCH_STEP_WRITE;
    if (t->named && fstat(t->target, &st))
        return -errno;
    if (t->named && (uint64_t)st.st_size != t->offset)
        return -EBADMSG;
    return file_write(t->target, bytes, n);
}

/* keeps_name - the temporary name still stands for the file that was written. */
static int keeps_name(const struct transfer *t)
{
    struct stat st;
    if (fstatat(t->tier, t->temporary, &st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    return st.st_ino == t->replica_ino && st.st_dev == t->tier_dev ? 0 : -EBADMSG;
}

/* copy_verify - proves that the copy is all there, read-only and what its name stands
 * for, and gives it the origin's mtime. */
int copy_verify(struct transfer *t)
{
    struct stat st;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, file_time(t->mtime_ns)};
    t->step = MONARCH_STEP_VERIFY;
    if (futimens(t->target, times) || fstat(t->target, &st))
        return -errno;
    if ((uint64_t)st.st_size != t->size || (st.st_mode & 07777) != 0400)
        return -EBADMSG;
    if (st.st_dev != t->tier_dev)
        return -EXDEV;
    t->replica_ino = st.st_ino;
    return t->named ? keeps_name(t) : 0;
}

/* close_target - an error that was held back until now is an error of writing. */
static int close_target(struct transfer *t)
{
    int fd = t->target;
    t->target = -1;
    if (close(fd) == 0 || errno == EINTR)
        return 0;
    t->step = MONARCH_STEP_WRITE;
    return -errno;
}

/* rename_named - without replacing; older file systems know that only as a link, whose
 * temporary name goes when the Transfer ends. */
static int rename_named(struct transfer *t)
{
    int rc = close_target(t);
    if (rc)
        return rc;
    if (syscall(SYS_renameat2, t->tier, t->temporary, t->tier, t->name,
                RENAME_NOREPLACE) == 0) {
        t->named = false;
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    return linkat(t->tier, t->temporary, t->tier, t->name, 0) ? -errno : 0;
}

static int link_by_path(const struct transfer *t)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", t->target);
    bool linked = linkat(AT_FDCWD, path, t->tier, t->name, AT_SYMLINK_FOLLOW) == 0;
    return linked ? 0 : -errno;
}

/* link_unnamed - by the descriptor itself, in half the time; before Linux 6.10 that is for
 * root alone, who else asks for it is told that there is no such file. */
static int link_unnamed(struct engine *e, const struct transfer *t)
{
    if (!atomic_load_explicit(&e->links_itself, memory_order_relaxed))
        return link_by_path(t);
    if (linkat(t->target, "", t->tier, t->name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOENT && errno != EPERM && errno != EINVAL)
        return -errno;
    int rc = link_by_path(t);
    if (!rc)
        atomic_store_explicit(&e->links_itself, false, memory_order_relaxed);
    return rc;
}

static int name_unnamed(struct engine *e, struct transfer *t)
{
    int rc = link_unnamed(e, t);
    if (rc)
        return rc;
    rc = close_target(t);
    if (rc)
        unlinkat(t->tier, t->name, 0);
    return rc;
}

static int give_name(struct engine *e, struct transfer *t)
{
    if (transfer_adopts(t))
        return 0;
    return t->named ? rename_named(t) : name_unnamed(e, t);
}

/* copy_publish - the inode is known before the name is there, and the name before the
 * state says READY: a program that sees one finds what it implies. */
int copy_publish(struct engine *e, struct transfer *t)
{
    uint32_t file = t->order.file, tier = t->order.tier;
    pthread_mutex_lock(&e->inodes_lock);
    int rc = replica_insert(e->inodes, tier, t->replica_ino, file);
    pthread_mutex_unlock(&e->inodes_lock);
    if (rc)
        return rc;
    rc = give_name(e, t);
    if (rc) {
        monarch_engine_forget(e, tier, t->replica_ino);
        return rc;
    }
    monarch_state_store((void *)(uintptr_t)e->catalog, file,
                        STATE_WORD(REPLICA_READY, tier, t->from));
    return 0;
}
