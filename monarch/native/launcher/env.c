/* env.c - the environments: with the Shim for the program, without it for our own. */
#include "preload.h"

#include <stdbool.h>
#include <stddef.h>
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

/* without_shim - copies a list for LD_PRELOAD without the Shim of `run`; everything else,
 * odd separators included, stays as it is. Returns the end of the copy. */
static char *without_shim(char *to, const char *list, const char *run)
{
    char *start = to;

    while (*list) {
        size_t length = strcspn(list, ": ");
        size_t whole = length + strspn(list + length, ": ");

        if (!is_shim(list, length, run)) {
            memcpy(to, list, whole);
            to += whole;
        } else if (!list[whole] && to > start) {
            to--; /* it was the last word: the separator before it goes too */
        }
        list += whole;
    }
    *to = '\0';
    return to;
}

/* list_value - a new `LD_PRELOAD=` with the Shim of `drop` removed and that of `add`
 * (NULL = none) behind all else: libraries that translate paths must have done so before
 * it sees them. NULL without memory. */
static char *list_value(const char *list, const char *add, const char *drop)
{
    size_t length = strlen(PRELOAD) + strlen(list) + 2;
    char *value = malloc(length + (add ? strlen(add) + strlen(SHIM) : 0));
    char *end = value;

    if (!value)
        return NULL;
    end += sprintf(end, PRELOAD);
    end = without_shim(end, list, drop);
    if (add && !strchr("=: ", end[-1]))
        *end++ = ':';
    if (add)
        sprintf(end, "%s" SHIM, add);
    return value;
}

static char *run_value(const char *run)
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

/* preload_add - the program's environment: envp, in its order, with LD_PRELOAD and the
 * one private variable changed in place, or added at the end. Returns NULL without
 * memory; nothing of it is ever freed, because exec follows. */
char **preload_add(char **envp, const char *run)
{
    const char *old_run = value_in(envp, RUN);
    const char *old_list = value_in(envp, PRELOAD);
    char **copy = calloc(count_of(envp) + 3, sizeof(*copy));
    char *list = list_value(old_list ? old_list : "", run, old_run);
    char *private = run_value(run);
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

/* preload_none - the environment for the agent: without the private variable and without
 * any preloaded library, which might show it other files or another time than the
 * kernel's. Returns NULL without memory. */
char **preload_none(char **envp)
{
    char **copy = calloc(count_of(envp) + 1, sizeof(*copy));
    size_t n = 0;

    for (; copy && *envp; envp++)
        if (!has_name(*envp, PRELOAD) && !has_name(*envp, RUN))
            copy[n++] = *envp;
    return copy;
}

/* preload_remove - the environment for our own Python: without the Shim. Returns NULL
 * without memory. */
char **preload_remove(char **envp)
{
    const char *run = value_in(envp, RUN);
    char **copy = calloc(count_of(envp) + 1, sizeof(*copy));
    size_t n = 0;

    if (!copy)
        return NULL;
    for (; *envp; envp++) {
        if (has_name(*envp, PRELOAD)) {
            char *list = list_value(*envp + strlen(PRELOAD), NULL, run);

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
