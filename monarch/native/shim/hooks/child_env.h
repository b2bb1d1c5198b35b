/* child_env.h - programs started by this one: kept under the Shim, and recorded. */
#ifndef MONARCH_CHILD_ENV_H
#define MONARCH_CHILD_ENV_H

#include <sys/types.h>

#include "shim/names/attached.h"

enum {
    PRELOAD_BYTES_MAX = 2048,
    ON_STACK_MAX = 8192, /* bytes: threads may have small stacks */
};

/* Prepares the record of a launch, and room for another environment if that may be needed. */
#define CHILD_ENV(l, given)                                                       \
    struct child_env l                                                            \
        __attribute__((cleanup(child_end))) = {.room_bytes = child_bytes(given)}; \
    l.entries = l.room_bytes <= ON_STACK_MAX ? __builtin_alloca(l.room_bytes)     \
                                             : child_room(&l);

struct child_env { /* lives on the stack, so that a vfork child may use it */
    const struct segments *seg;
    struct process *slot;                 /* NULL: nothing was recorded */
    char name_before[PROCESS_NAME_BYTES]; /* restored when the launch fails */
    char *const *given;                   /* the environment that the program passes */
    size_t room_bytes;                    /* 0: none, nothing may be added */
    char **entries; /* the room: another environment, then its new variables */
    char *preload;
    char *run;
};

size_t child_bytes(char *const envp[]);
void *child_room(struct child_env *l);
void child_end(struct child_env *l);
void child_unseen(const struct child_env *l);

char *const *child_environment(struct child_env *l, const char *path,
                               char *const envp[]);
void child_begin(struct child_env *l, const char *name);
void child_failed(struct child_env *l);
void child_scrub(void);
void child_spawned(const struct child_env *l, pid_t pid, const char *name);

#endif
