/* job.h - the constants of one job on this node and the state that its parts share: the segments,
 * the directories of the Tiers, and the call to Python. */
#ifndef MONARCH_JOB_H
#define MONARCH_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "dataplane/base/export.h"
#include "dataplane/media/frame.h"
#include "shared/layout.h"

struct job {
    const struct catalog *catalog;
    struct flags *flags;
    struct requests *requests;
    struct inodes *inodes;
    pthread_mutex_t inodes_lock; /* serialises changes of the inode table */
    int tiers[TIERS_MAX];        /* descriptors of their directories, or -errno */
    uid_t euid;
    uint32_t root_count;
    atomic_bool stopping;
    /* The only call to Python, which alone can judge a faulty File. */
    void (*judge)(void *judge_of, uint32_t file);
    void *judge_of;
};

/* job_awaits - a program waits for a File, or for another one with the same counter. */
static inline bool job_awaits(const struct job *job, uint32_t file)
{
    return atomic_load_explicit(
        (const _Atomic uint32_t *)&job->requests->waiters[file % WAITER_COUNTS],
        memory_order_relaxed);
}

static inline bool job_stopping(const struct job *job)
{
    return atomic_load_explicit(&job->stopping, memory_order_acquire);
}

void job_open_tiers(struct job *job);
void job_close_tiers(struct job *job);
void job_ring(struct job *job);
int job_add_inode(struct job *job, uint32_t tier, uint64_t ino, uint32_t file);
void job_forget_inode(struct job *job, uint32_t tier, uint64_t ino);
void job_keep_inode(struct job *job, uint32_t tier, uint64_t ino);
void job_frame_name(const struct job *job, uint32_t file,
                    uint8_t out[FRAME_NAME_BYTES]);
bool job_frame_is_of(const struct job *job, uint32_t file, const uint8_t *bytes);

/* For Python, which also uses the segments without an engine. */
MONARCH_API void monarch_agent_state_store(void *requests, uint32_t state);
MONARCH_API void monarch_beat(void *requests);

#endif
