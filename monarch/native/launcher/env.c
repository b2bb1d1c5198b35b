/* env.c - environments: with the Shim for the program, without it for Monarch's Python. */
#include "launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRELOAD "LD_PRELOAD="
#define RUN "MONARCH_STAGING_RUN="
#define SHIM "/shim.so"

static bool has_name(const char *variable, const char *name)
{
    return !strncmp(variable, name, strlen(name));
}

/* is_shim - whether a word of LD_PRELOAD is the Shim of the run directory `run`. */
static bool is_shim(const char *word, size_t length, const char *run)
{
    size_t run_length = run ? strlen(run) : 0;

    return run && length == run_length + strlen(SHIM) &&
           !memcmp(word, run, run_length) &&
           !memcmp(word + run_length, SHIM, strlen(SHIM));
}

/* copy_without_shim - copies a value of LD_PRELOAD without the Shim of `run`; everything
 * else, repeated separators included, stays as it is. Returns the end of the copy. */
static char *copy_without_shim(char *to, const char *list, const char *run)
{
    char *start = to;

    while (*list) {
        size_t length = strcspn(list, ": ");
        size_t whole = length + strspn(list + length, ": ");

        if (!is_shim(list, length, run)) {
            memcpy(to, list, whole);
            to += whole;
        } else if (!list[whole] && to > start) {
            to--; /* it was the last word: drop the separator before it too */
        }
        list += whole;
    }
    *to = '\0';
    return to;
}

/* preload_variable - returns a new `LD_PRELOAD=` without the Shim of `drop` and with that of `add`
 * (NULL = none) at the end: libraries that translate paths must run before the Shim. NULL without
 * memory. */
static char *preload_variable(const char *list, const char *add, const char *drop)
{
    size_t length = strlen(PRELOAD) + strlen(list) + 2;
    char *value = malloc(length + (add ? strlen(add) + strlen(SHIM) : 0));
    char *end = value;

    if (!value)
        return NULL;
    end += sprintf(end, PRELOAD);
    end = copy_without_shim(end, list, drop);
    if (add && !strchr("=: ", end[-1]))
        *end++ = ':';
    if (add)
        sprintf(end, "%s" SHIM, add);
    return value;
}

static char *run_variable(const char *run)
{
    char *value = malloc(strlen(RUN) + strlen(run) + 1);

    if (value)
        sprintf(value, RUN "%s", run);
    return value;
}

static size_t count_of(char **envp)
{
    size_t count = 0;

    while (envp[count])
        count++;
    return count;
}

static const char *value_in(char **envp, const char *name)
{
    for (; *envp; envp++)
        if (has_name(*envp, name))
            return *envp + strlen(name);
    return NULL;
}

/* env_for_program - returns the program's environment: envp in its order, with LD_PRELOAD and
 * MONARCH_STAGING_RUN changed in place or added at the end. NULL without memory. Nothing of it is
 * freed, because exec follows. */
char **env_for_program(char **envp, const char *run)
{
    const char *old_run = value_in(envp, RUN);
    const char *old_list = value_in(envp, PRELOAD);
    char **copy = calloc(count_of(envp) + 3, sizeof(*copy));
    char *list = preload_variable(old_list ? old_list : "", run, old_run);
    char *private = run_variable(run);
    size_t n = 0;

    if (!copy || !list || !private)
        return NULL;
    for (; *envp; envp++) {
        if (has_name(*envp, PRELOAD))
            copy[n++] = list;
        else if (has_name(*envp, RUN))
            copy[n++] = private;
        else
            copy[n++] = *envp;
    }
    if (!old_list)
        copy[n++] = list;
    if (!old_run)
        copy[n++] = private;
    return copy;
}

/* env_for_agent - returns the agent's environment: without MONARCH_STAGING_RUN and without any
 * preloaded library, because such a library may change which files or which time the agent sees.
 * NULL without memory. */
char **env_for_agent(char **envp)
{
    char **copy = calloc(count_of(envp) + 1, sizeof(*copy));
    size_t n = 0;

    for (; copy && *envp; envp++)
        if (!has_name(*envp, PRELOAD) && !has_name(*envp, RUN))
            copy[n++] = *envp;
    return copy;
}

/* env_for_python - returns the environment of the verbs that Python runs: without the Shim. NULL
 * without memory. */
char **env_for_python(char **envp)
{
    const char *run = value_in(envp, RUN);
    char **copy = calloc(count_of(envp) + 1, sizeof(*copy));
    size_t n = 0;

    if (!copy)
        return NULL;
    for (; *envp; envp++) {
        if (has_name(*envp, PRELOAD)) {
            char *list = preload_variable(*envp + strlen(PRELOAD), NULL, run);

            if (!list)
                return NULL;
            if (list[strlen(PRELOAD)])
                copy[n++] = list;
        } else {
            copy[n++] = *envp;
        }
    }
    return copy;
}
