/* open_replicas.c - descriptors of Replicas that peers ask for, kept open for the next one. */
#include "dataplane/open_replicas.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "shared/catalog.h"
#include "dataplane/transfer.h"

/* kept_init - none is open. */
void kept_init(struct kept all[KEPT_MAX])
{
    for (int i = 0; i < KEPT_MAX; i++)
        all[i] = (struct kept){.fd = -1};
}

static void shut(struct kept *k)
{
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
}

/* stamp_of - inode numbers come again; the time at which one got its name does not. */
static uint64_t stamp_of(const struct stat *st)
{
    return ((uint64_t)st->st_ctim.tv_sec * SECOND_NS + (uint64_t)st->st_ctim.tv_nsec) ^
           st->st_ino << 40;
}

/* open_replica - a descriptor, or -errno; -EIO: it is not what was published. */
static int open_replica(struct engine *e, uint32_t file, uint32_t word, struct stat *st)
{
    char name[REPLICA_NAME_BYTES + 1];
    uint32_t tier = STATE_TIER(word);
    if (tier >= TIERS_MAX || e->tiers[tier] < 0)
        return -EIO;
    catalog_replica_name(e->catalog, file, name);
    int fd = file_openat(e->tiers[tier], name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) &&
        (uint64_t)st->st_size == catalog_entry(e->catalog, file, NULL)->size)
        return fd;
    close(fd);
    return -EIO;
}

/* is_current - the descriptor leads to the Replica that is READY now. One that was evicted
 * and came back has the same state as before, but the old file lost its name. */
static bool is_current(const struct engine *e, const struct kept *k)
{
    struct stat st;
    return replica_load(e->catalog, k->file) == k->word && fstat(k->fd, &st) == 0 &&
           st.st_nlink > 0;
}

/* kept_take - a descriptor of the Replica of a File that is READY, to be returned after
 * use. Each File has one place; where another is in use there, `single` is filled. */
int kept_take(struct engine *e, struct kept all[KEPT_MAX], uint32_t file,
              struct kept *single, struct kept **out)
{
    struct kept *k = &all[file % KEPT_MAX];
    uint32_t word = replica_load(e->catalog, file);
    if (k->fd < 0 || k->file != file || k->word != word ||
        (k->spans && !is_current(e, k))) {
        struct stat st;
        int fd = open_replica(e, file, word, &st);
        if (fd < 0)
            return fd;
        bool busy = k->users > 0;
        k = busy ? single : k;
        if (!busy)
            shut(k);
        *k = (struct kept){.file = file,
                           .word = word,
                           .stamp = stamp_of(&st),
                           .fd = fd,
                           .single = busy,
                           .spans = (uint64_t)st.st_size > EXTENT_BYTES};
    }
    k->users++;
    *out = k;
    return 0;
}

/* kept_return - ends one use. */
void kept_return(struct kept *k)
{
    k->users--;
    if (k->single)
        shut(k);
}

/* kept_sweep - closes what is READY no more: an evicted Replica takes up its room as long
 * as it is open. */
void kept_sweep(struct engine *e, struct kept all[KEPT_MAX])
{
    for (int i = 0; i < KEPT_MAX; i++) {
        struct kept *k = &all[i];
        if (k->fd >= 0 && !k->users && !is_current(e, k))
            shut(k);
    }
}

/* kept_free - closes all. */
void kept_free(struct kept all[KEPT_MAX])
{
    for (int i = 0; i < KEPT_MAX; i++)
        shut(&all[i]);
}
