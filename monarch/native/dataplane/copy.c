/* copy.c - the file in the Tier: created under a temporary name, checked, published. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/publish.h"
#include "dataplane/transfer.h"
#include "shared/replica.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* copy_create - creates the temporary file; a leftover of that name is our own. */
int copy_create(struct transfer *t)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL;
    t->step = MONARCH_STEP_CREATE;
    snprintf(t->temporary, sizeof(t->temporary), ".%s.%u.part", t->name, t->order.file);
    int fd = file_openat(t->tier, t->temporary, flags, 0400);
    if (fd == -EEXIST && unlinkat(t->tier, t->temporary, 0) == 0)
        fd = file_openat(t->tier, t->temporary, flags, 0400);
    if (fd < 0)
        return fd;
    t->target = fd;
    t->created = true;
    return 0;
}

/* close_target - an error that was held back until now is an error of writing. */
static int close_target(struct transfer *t)
{
    int fd = t->target;
    t->target = -1;
    t->step = MONARCH_STEP_WRITE;
    return close(fd) && errno != EINTR ? -errno : 0;
}

/* file_time - for futimens(); times before 1970 are negative. */
static struct timespec file_time(int64_t ns)
{
    int64_t seconds = ns / (int64_t)SECOND_NS, rest = ns % (int64_t)SECOND_NS;
    if (rest < 0)
        return (struct timespec){seconds - 1, rest + (int64_t)SECOND_NS};
    return (struct timespec){seconds, rest};
}

/* copy_verify - closes the copy and proves that what carries its name is all of it: the
 * same inode, the full size, still read-only. It takes the origin's mtime. */
int copy_verify(struct transfer *t)
{
    struct stat st, named;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, file_time(t->mtime_ns)};
    t->step = MONARCH_STEP_VERIFY;
    if (futimens(t->target, times) || fstat(t->target, &st))
        return -errno;
    int rc = close_target(t);
    if (rc)
        return rc;
    t->step = MONARCH_STEP_VERIFY;
    if (fstatat(t->tier, t->temporary, &named, AT_SYMLINK_NOFOLLOW))
        return -errno;
    if (named.st_ino != st.st_ino || named.st_dev != st.st_dev ||
        (uint64_t)named.st_size != t->size || (named.st_mode & 07777) != 0400)
        return -EBADMSG;
    t->replica_ino = st.st_ino;
    return st.st_dev == t->tier_dev ? 0 : -EXDEV;
}

/* give_name - renames without replacing; older file systems know that only as a link. */
static int give_name(struct transfer *t)
{
    if (!t->created)
        return 0; /* adopted: it has its name */
    if (syscall(SYS_renameat2, t->tier, t->temporary, t->tier, t->name,
                RENAME_NOREPLACE) == 0) {
        t->created = false;
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* The temporary name is unlinked when the Transfer ends. */
    return linkat(t->tier, t->temporary, t->tier, t->name, 0) ? -errno : 0;
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
    rc = give_name(t);
    if (rc) {
        monarch_engine_forget(e, tier, t->replica_ino);
        return rc;
    }
    monarch_state_store((void *)(uintptr_t)e->catalog, file,
                        STATE_WORD(REPLICA_READY, tier, REASON_NONE));
    return 0;
}
