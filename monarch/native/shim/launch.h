/* launch.h - programs started by this one: kept under the Shim, and recorded. */
#ifndef MONARCH_LAUNCH_H
#define MONARCH_LAUNCH_H

#include <sys/types.h>

#include "board.h"

enum {
    ENVIRONMENT_MAX = 8192, /* larger ones are passed on as they are */
    PRELOAD_BYTES_MAX = 2048,
};

/* Prepares the record of a launch. The room for another environment is as large as it
 * needs to be: threads may have small stacks. */
#define LAUNCH(l, given)                                   \
    struct launch l = {.room_bytes = launch_bytes(given)}; \
    l.entries = __builtin_alloca(l.room_bytes);

struct launch { /* lives on the stack, so that a vfork child may use it */
    const struct board *b;
    struct process *slot;                 /* NULL: nothing was recorded */
    char name_before[PROCESS_NAME_BYTES]; /* to go back to when the launch fails */
    char *const *given;                   /* the environment that the program passes */
    size_t room_bytes;                    /* 0: there is none, nothing may be put in */
    char **entries; /* the room: another environment, then what is new in it */
    char *preload;
    char *run;
};

size_t launch_bytes(char *const envp[]);

char *const *launch_environment(struct launch *l, const char *path, char *const envp[]);
void launch_begin(struct launch *l, const char *name);
void launch_failed(struct launch *l);
void launch_scrub(void);
void launch_spawned(const struct launch *l, pid_t pid, const char *name);

#endif
