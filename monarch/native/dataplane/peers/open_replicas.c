/* open_replicas.c - descriptors of Replicas that peers request, kept open for reuse. */
#include "dataplane/peers/open_replicas.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "shared/catalog.h"

/* open_replicas_init - marks all slots as unused. */
void open_replicas_init(struct open_replica all[OPEN_REPLICAS_MAX])
{
    for (int i = 0; i < OPEN_REPLICAS_MAX; i++)
        all[i] = (struct open_replica){.fd = -1};
}

static void close_one(struct open_replica *o)
{
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
}

/* stamp_of - combines the inode number, which may be reused, with the time of the last change. */
static uint64_t stamp_of(const struct stat *st)
{
    return ((uint64_t)st->st_ctim.tv_sec * SECOND_NS + (uint64_t)st->st_ctim.tv_nsec) ^
           st->st_ino << 40;
}

/* open_ready - returns a descriptor, or -errno; -EIO: it is not what was published. */
static int open_ready(struct job *job, uint32_t file, uint32_t word, struct stat *st)
{
    char name[REPLICA_NAME_BYTES + 1];
    uint32_t tier = STATE_TIER(word);
    if (tier >= TIERS_MAX || job->tiers[tier] < 0)
        return -EIO;
    catalog_replica_name(job->catalog, file, name);
    int fd = file_openat(job->tiers[tier], name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) &&
        (uint64_t)st->st_size == catalog_entry(job->catalog, file, NULL)->size)
        return fd;
    close(fd);
    return -EIO;
}

/* is_current - the descriptor is that of the Replica that is READY now. After an eviction and a new
 * copy the state is the same as before, but the old file has no name. */
static bool is_current(const struct job *job, const struct open_replica *o)
{
    struct stat st;
    return replica_load(job->catalog, o->file) == o->word && fstat(o->fd, &st) == 0 &&
           st.st_nlink > 0;
}

/* open_replicas_get - returns a descriptor of the READY Replica of a File, for open_replicas_put()
 * after use. Each File has one slot; if another File is in use there, `single` is filled. */
int open_replicas_get(struct job *job, struct open_replica all[OPEN_REPLICAS_MAX],
                      uint32_t file, struct open_replica *single,
                      struct open_replica **out)
{
    struct open_replica *o = &all[file % OPEN_REPLICAS_MAX];
    uint32_t word = replica_load(job->catalog, file);
    if (o->fd < 0 || o->file != file || o->word != word ||
        (o->spans && !is_current(job, o))) {
        struct stat st;
        int fd = open_ready(job, file, word, &st);
        if (fd < 0)
            return fd;
        bool busy = o->users > 0;
        o = busy ? single : o;
        if (!busy)
            close_one(o);
        *o = (struct open_replica){.file = file,
                                   .word = word,
                                   .stamp = stamp_of(&st),
                                   .fd = fd,
                                   .single = busy,
                                   .spans = (uint64_t)st.st_size > EXTENT_BYTES};
    }
    o->users++;
    *out = o;
    return 0;
}

/* open_replicas_put - ends one use. */
void open_replicas_put(struct open_replica *o)
{
    o->users--;
    if (o->single)
        close_one(o);
}

/* open_replicas_sweep - closes Replicas that are no longer READY: an evicted one
 * occupies its space as long as it is open. */
void open_replicas_sweep(struct job *job, struct open_replica all[OPEN_REPLICAS_MAX])
{
    for (int i = 0; i < OPEN_REPLICAS_MAX; i++) {
        struct open_replica *o = &all[i];
        if (o->fd >= 0 && !o->users && !is_current(job, o))
            close_one(o);
    }
}

/* open_replicas_close - closes all descriptors. */
void open_replicas_close(struct open_replica all[OPEN_REPLICAS_MAX])
{
    for (int i = 0; i < OPEN_REPLICAS_MAX; i++)
        close_one(&all[i]);
}
