/* rundir.h - the run directory of a job on this node. */
#ifndef MONARCH_RUNDIR_H
#define MONARCH_RUNDIR_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct jobname;

struct rundir {
    int fd;
    char path[PATH_MAX];
    char fault[PATH_MAX + 128]; /* why it cannot be used, after an error */
    bool moved;                 /* `fault` says why it is not in its usual place */
};

int rundir_join(struct rundir *run, const char *path);
int rundir_make(struct rundir *run, const struct jobname *name);
int rundir_renew(struct rundir *run);
bool rundir_agent_lives(const struct rundir *run);
int rundir_start_lock(const struct rundir *run, pid_t *stopped);
void rundir_drop(const struct rundir *run);
void rundir_close(struct rundir *run);

#endif
