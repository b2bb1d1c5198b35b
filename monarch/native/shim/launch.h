/* launch.h - programs started by this one: kept under the Shim, and recorded. */
#ifndef MONARCH_LAUNCH_H
#define MONARCH_LAUNCH_H

#include <sys/types.h>

#include "board.h"

enum {
    ENVIRONMENT_MAX = 1024, /* larger ones are passed on as they are */
    PRELOAD_BYTES_MAX = 2048,
};

struct launch { /* lives on the stack, so that a vfork child may use it */
    const struct board *b;
    struct process *slot;                 /* NULL: nothing was recorded */
    char name_before[PROCESS_NAME_BYTES]; /* to go back to when the launch fails */
    char *const *given;                   /* the environment that the program passes */
    char *entries[ENVIRONMENT_MAX + 3];
    char preload[PRELOAD_BYTES_MAX];
    char run[RUN_BYTES_MAX + 32];
};

char *const *launch_environment(struct launch *l, const char *path, char *const envp[]);
void launch_begin(struct launch *l, const char *name);
void launch_failed(struct launch *l);
void launch_spawned(const struct launch *l, pid_t pid, const char *name);

#endif
