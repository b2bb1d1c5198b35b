/* python.c - the Python that runs everything but `monarch run`: the one beside us. */
#include "python.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* beside_us - a file in the directory of our own executable. */
static int beside_us(char path[PATH_MAX], const char *name)
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    char *slash;

    if (n < 0)
        return -errno;
    path[n] = '\0';
    slash = strrchr(path, '/');
    if (!slash || slash + 1 + strlen(name) >= path + PATH_MAX)
        return -ENAMETOOLONG;
    strcpy(slash + 1, name);
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* python_find - finds the interpreter: MONARCH_STAGING_PYTHON, else the one in the
 * directory of our own file. Returns 0 or -errno; path is then what was missing. */
int python_find(char path[PATH_MAX])
{
    const char *given = getenv("MONARCH_STAGING_PYTHON");

    if (given && *given) {
        if (snprintf(path, PATH_MAX, "%s", given) >= PATH_MAX)
            return -ENAMETOOLONG;
        return access(path, X_OK) < 0 ? -errno : 0;
    }
    path[0] = '\0';
    if (!beside_us(path, "python3") || !beside_us(path, "python"))
        return 0;
    return beside_us(path, "python3");
}

static size_t count_of(const char *const *words)
{
    size_t count = 0;

    while (words[count])
        count++;
    return count;
}

/* python_argv - `python -P -m monarch HEAD TAIL`, or NULL without memory. -P keeps the
 * program's own directory from hiding our modules. */
char **python_argv(const char *python, const char *const *head, char **tail)
{
    const char *const start[] = {python, "-P", "-m", "monarch", NULL};
    const char *const *const parts[] = {start, head, (const char *const *)tail};
    size_t used = 0;
    char **argv = calloc(5 + count_of(head) + count_of(parts[2]), sizeof(*argv));

    for (size_t i = 0; argv && i < 3; i++) {
        size_t count = count_of(parts[i]);

        memcpy(argv + used, parts[i], count * sizeof(*argv));
        used += count;
    }
    return argv;
}

/* python_exec - becomes Python, and returns if that fails. Where this is a program of
 * another run, its Shim would put itself back at an exec that it sees: what an agent, or
 * `monarch clean`, removes in a Tier must be what it names. */
void python_exec(const char *python, char **argv, char **envp)
{
    syscall(SYS_execve, python, argv, envp);
}
