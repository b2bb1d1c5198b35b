/* child_env.h - programs started by this one: kept under the Shim, and recorded. */
#ifndef MONARCH_CHILD_ENV_H
#define MONARCH_CHILD_ENV_H

#include <sys/types.h>

#include "attach.h"

enum {
    PRELOAD_BYTES_MAX = 2048,
    ON_STACK_MAX = 8192, /* bytes: threads may have small stacks */
};

/* Prepares the record of a launch, and room for another environment where that may be
 * needed. */
#define LAUNCH(l, given)                                                            \
    struct launch l                                                                 \
        __attribute__((cleanup(launch_end))) = {.room_bytes = launch_bytes(given)}; \
    l.entries = l.room_bytes <= ON_STACK_MAX ? __builtin_alloca(l.room_bytes)       \
                                             : launch_room(&l);

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
void *launch_room(struct launch *l);
void launch_end(struct launch *l);
void launch_unseen(const struct launch *l);

char *const *launch_environment(struct launch *l, const char *path, char *const envp[]);
void launch_begin(struct launch *l, const char *name);
void launch_failed(struct launch *l);
void launch_scrub(void);
void launch_spawned(const struct launch *l, pid_t pid, const char *name);

#endif
