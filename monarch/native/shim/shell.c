/* shell.c - functions of libc that start a shell by themselves, with the environment that
 * there is: a program may have taken the Shim out of that. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launch.h"
#include "next.h"
#include "sys.h"

struct lent { /* an environment that stands in for the program's while libc starts */
    struct launch launch;
    char **before;
    char **instead; /* NULL: the program's own will do */
};

/* lend - completes the environment. It lies in memory of its own, because a thread that
 * sets a variable meanwhile makes libc go on with a copy of the entries. */
static void lend(struct lent *e)
{
    struct launch *l = &e->launch;
    int kept = errno;
    e->before = environ;
    e->instead = NULL;
    l->room_bytes = launch_bytes(environ);
    long at = l->room_bytes
                  ? sys_call(SYS_mmap, 0, (long)l->room_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1)
                  : 0;
    if (at > 0 || at < -4095) {
        l->entries = (char **)at;
        char *const *env = launch_environment(l, "/bin/sh", environ);
        if (env == (char *const *)l->entries)
            environ = e->instead = l->entries;
        else
            sys_call(SYS_munmap, at, (long)l->room_bytes, 0, 0, 0);
    }
    errno = kept;
}

/* take_back - restores the environment, unless the program has changed it meanwhile. */
static void take_back(struct lent *e)
{
    if (!e->instead || environ != e->instead)
        return;
    environ = e->before;
    sys_call(SYS_munmap, (long)e->instead, (long)e->launch.room_bytes, 0, 0, 0);
}

int system(const char *command)
{
    struct lent e;
    lend(&e);
    int result = NEXT(system)(command);
    take_back(&e);
    return result;
}

FILE *popen(const char *command, const char *mode)
{
    struct lent e;
    lend(&e);
    FILE *result = NEXT(popen)(command, mode);
    take_back(&e);
    return result;
}

int wordexp(const char *words, wordexp_t *out, int flags)
{
    struct lent e;
    lend(&e);
    int result = NEXT(wordexp)(words, out, flags);
    take_back(&e);
    return result;
}
