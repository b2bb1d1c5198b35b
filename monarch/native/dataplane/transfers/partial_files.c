/* partial_files.c - opens the sparse file of a partial Replica, and the origin's file beside it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/partial.h"
#include "dataplane/transfers/transfer.h"
#include "shared/xxh3.h"

/* create - creates the sparse file under the name of the Replica. An existing file of that name was
 * left by a killed agent. */
static int create(struct transfer *t, const struct partial *p)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL;
    t->step = MONARCH_STEP_CREATE;
    int fd = file_openat(t->file.dir, p->name, flags, 0400);
    if (fd == -EEXIST && unlinkat(t->file.dir, p->name, 0) == 0)
        fd = file_openat(t->file.dir, p->name, flags, 0400);
    if (fd >= 0 && ftruncate(fd, (off_t)t->original.size)) {
        int error = -errno;
        unlinkat(t->file.dir, p->name, 0);
        close(fd);
        return error;
    }
    return fd;
}

/* reopen - opens the file again, which is read-only for all but root. */
static int reopen(const struct transfer *t, const struct partial *p)
{
    int fd = file_openat(t->file.dir, p->name, O_RDWR, 0);
    if (fd != -EACCES || fchmodat(t->file.dir, p->name, 0600, 0))
        return fd;
    fd = file_openat(t->file.dir, p->name, O_RDWR, 0);
    int rc = fchmodat(t->file.dir, p->name, 0400, 0) ? -errno : 0;
    if (rc && fd >= 0)
        close(fd);
    return rc && fd >= 0 ? rc : fd;
}

/* open_target - opens the sparse file in the Tier of the Transfer. -EBADMSG: it was replaced since
 * it was created. */
static int open_target(struct transfer *t, struct partial *p, struct part_file *f)
{
    struct stat st;
    int fd = f->ino ? reopen(t, p) : create(t, p);
    t->step = MONARCH_STEP_CREATE;
    if (fd < 0)
        return fd;
    int rc = fstat(fd, &st) ? -errno : 0;
    if (!rc && (st.st_dev != t->file.dev || (f->ino && st.st_ino != f->ino) ||
                (uint64_t)st.st_size != t->original.size))
        rc = -EBADMSG;
    if (rc) {
        close(fd);
        return rc;
    }
    f->ino = st.st_ino;
    return fd;
}

/* open_extent - opens the file of one Extent in the Pool, for this step only. */
static int open_extent(struct transfer *t, const struct partial *p, uint32_t extent)
{
    char name[EXTENT_NAME_BYTES + 1];
    memcpy(name, p->name, REPLICA_NAME_BYTES);
    presence_extent_name(extent, name);
    t->step = MONARCH_STEP_CREATE;
    int fd = file_openat(t->file.dir, name, O_RDWR | O_CREAT, 0600);
    t->file.shift = (uint64_t)extent * EXTENT_BYTES;
    t->file.is_own = fd >= 0;
    return fd;
}

/* open_files - opens the files that are not open yet; the lock of their opening is held. A Replica
 * that has ended may be the file of another job: it is not opened for writing. */
static int open_files(struct transfers *ts, struct transfer *t, uint32_t extent,
                      bool source)
{
    struct partial *p = t->partial;
    int status;
    if (partial_ended(ts->partials, p, &status))
        return -ECANCELED;
    uint8_t place = atomic_load_explicit(&p->places[extent], memory_order_acquire);
    uint32_t tier = place & ~(uint32_t)PLACE_FILE;
    if (source && p->source < 0) {
        int rc = transfer_open_origin(ts, t);
        if (rc)
            return rc;
        if (!atomic_load(&p->from_origin))
            p->drops_pages = t->original.drops_pages;
        partial_opened(ts->partials, &p->source, t->read.fd);
    }
    if (tier >= TIERS_MAX || ts->job->tiers[tier] < 0)
        return -ECANCELED;          /* it was removed since the claim */
    t->order.tier = (uint16_t)tier; /* by which a failure is judged */
    t->file.dir = ts->job->tiers[tier];
    t->file.dev = ts->job->catalog->tiers[tier].dev;
    if (place & PLACE_FILE)
        return open_extent(t, p, extent);
    struct part_file *f = &p->files[tier];
    int target = f->fd >= 0 ? f->fd : open_target(t, p, f);
    if (target >= 0 && f->fd < 0)
        partial_opened(ts->partials, &f->fd, target);
    return target;
}

/* partial_borrow - lends the files with an Extent for one step of a Transfer, until
 * partial_return(); with `source` also that of the origin. */
int partial_borrow(struct transfers *ts, struct transfer *t, uint32_t extent,
                   bool source)
{
    struct partial *p = t->partial;
    partial_return(t);
    t->file.removals = partial_removals(ts->partials, p, extent);
    pthread_mutex_lock(&p->opening);
    int target = open_files(ts, t, extent, source);
    t->read.fd = target < 0 || !source ? -1 : p->source;
    t->file.fd = target < 0 ? -1 : target;
    t->original.drops_pages = p->drops_pages;
    pthread_mutex_unlock(&p->opening);
    return target < 0 ? target : 0;
}

/* partial_return - returns the files that the Transfer has borrowed. */
void partial_return(struct transfer *t)
{
    if (t->file.is_own)
        close(t->file.fd);
    t->file.is_own = false;
    t->read.fd = t->file.fd = -1;
    t->file.shift = 0;
}
