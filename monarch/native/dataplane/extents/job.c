/* job.c - the words by which programs and the agent wake each other, the inode table, and the
 * directories of the Tiers.
 */
#include "dataplane/extents/job.h"

#include <limits.h>
#include <string.h>

#include "dataplane/base/syscalls.h"
#include "shared/catalog.h"
#include "shared/replica_table.h"

/* job_open_tiers - opens the directories of the Tiers; after a failure -errno is the descriptor. */
void job_open_tiers(struct job *job)
{
    for (uint32_t i = 0; i < TIERS_MAX; i++) {
        job->tiers[i] = -ENOENT;
        if (i < job->catalog->tier_count)
            job->tiers[i] = file_openat(AT_FDCWD, job->catalog->tiers[i].path,
                                        O_PATH | O_DIRECTORY, 0);
    }
}

/* job_close_tiers - closes these directories; no thread uses them any more. */
void job_close_tiers(struct job *job)
{
    for (uint32_t i = 0; i < TIERS_MAX; i++)
        if (job->tiers[i] >= 0)
            close(job->tiers[i]);
}

/* ---- words in the requests segment -------------------------------------------------- */

/* monarch_agent_state_store - publishes the state of the agent and wakes launchers. */
void monarch_agent_state_store(void *requests, uint32_t state)
{
    _Atomic uint32_t *word =
        (_Atomic uint32_t *)&((struct requests *)requests)->agent_state;
    atomic_store_explicit(word, state, memory_order_release);
    futex_wake(word, INT_MAX);
}

/* monarch_beat - stores a heartbeat; the engine calls it every HEARTBEAT_MS. */
void monarch_beat(void *requests)
{
    struct requests *r = requests;
    atomic_store_explicit((_Atomic uint64_t *)&r->heartbeat_ns, clock_ns(),
                          memory_order_release);
}

/* job_ring - wakes the listening thread, as programs do. */
void job_ring(struct job *job)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&job->requests->bell;
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    futex_wake(bell, 1);
}

/* ---- inodes of Replicas ------------------------------------------------------------- */

/* job_add_inode - notes that an inode of a Tier belongs to a File; -ENOSPC: the table is full. */
int job_add_inode(struct job *job, uint32_t tier, uint64_t ino, uint32_t file)
{
    pthread_mutex_lock(&job->inodes_lock);
    int rc = replica_insert(job->inodes, tier, ino, file);
    pthread_mutex_unlock(&job->inodes_lock);
    return rc;
}

/* job_forget_inode - removes the inode of a Replica from the table. */
void job_forget_inode(struct job *job, uint32_t tier, uint64_t ino)
{
    pthread_mutex_lock(&job->inodes_lock);
    replica_remove(job->inodes, tier, ino);
    pthread_mutex_unlock(&job->inodes_lock);
}

/* job_keep_inode - keeps the inode of a removed Replica, which programs may still have open,
 * until its slot is needed. */
void job_keep_inode(struct job *job, uint32_t tier, uint64_t ino)
{
    pthread_mutex_lock(&job->inodes_lock);
    replica_keep(job->inodes, tier, ino);
    pthread_mutex_unlock(&job->inodes_lock);
}

/* ---- names in frames ---------------------------------------------------------------- */

/* job_frame_name - converts the name of the Replica of a File to its form in a frame. */
void job_frame_name(const struct job *job, uint32_t file, uint8_t out[FRAME_NAME_BYTES])
{
    char name[REPLICA_NAME_BYTES + 1];
    catalog_replica_name(job->catalog, file, name);
    frame_name(name, out);
}

/* job_frame_is_of - bytes begin with the head of a frame of the File. */
bool job_frame_is_of(const struct job *job, uint32_t file, const uint8_t *bytes)
{
    struct frame_head head;
    uint8_t expected[FRAME_NAME_BYTES];
    memcpy(&head, bytes, sizeof(head));
    job_frame_name(job, file, expected);
    return head.magic == FRAME_MAGIC &&
           memcmp(head.name, expected, sizeof(expected)) == 0;
}
