/* shell.c - functions of libc that start a shell by themselves, with the current environment, from
 * which a program may have removed the Shim. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/hooks/child_env.h"
#include "shim/base/next.h"
#include "shim/base/sys.h"

enum { TURNS_MAX = 10000 };

/* The environment that replaces the program's while libc starts a shell. It is never unmapped:
 * another thread may read variables in it. */
static struct {
    _Atomic uint32_t taken;
    uint32_t users;
    char **before;  /* the program's own */
    char **instead; /* the completed one */
    char **as_made; /* a copy of that, to detect changes by the program */
    long room_bytes;
} lent;

/* claim - locks `lent` for one thread; false: the thread that holds it will not release it, because
 * this is its fork child. */
static bool claim(void)
{
    for (int n = 0; n < TURNS_MAX; n++) {
        uint32_t expected = 0;
        if (atomic_compare_exchange_strong(&lent.taken, &expected, 1))
            return true;
        sys_call(SYS_sched_yield, 0, 0, 0, 0, 0);
    }
    return false;
}

static void unclaim(void)
{
    atomic_store(&lent.taken, 0);
}

static size_t environment_bytes(char *const *environment)
{
    size_t n = 1;
    while (environment && environment[n - 1])
        n++;
    return n * sizeof(*environment);
}

/* make_room - maps memory for the environment and for a copy of its entries. */
static bool make_room(long bytes)
{
    if (bytes <= lent.room_bytes)
        return true;
    long at = sys_call(SYS_mmap, 0, 2 * bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at < 0 && at >= -4095)
        return false;
    lent.instead = (char **)at;
    lent.as_made = (char **)(at + bytes);
    lent.room_bytes = bytes;
    return true;
}

/* install - completes the environment; false: it lacks nothing. */
static bool install(void)
{
    struct child_env l = {.room_bytes = child_bytes(environ)};
    if (!make_room((long)((l.room_bytes + 15) & ~(size_t)15)))
        l.room_bytes = 0; /* then it only checks */
    l.entries = lent.instead;
    char *const *made = child_environment(&l, "/bin/sh", environ);
    if (!l.room_bytes || made != lent.instead)
        return false;
    memcpy(lent.as_made, lent.instead, environment_bytes(lent.instead));
    lent.before = environ;
    environ = lent.instead;
    return true;
}

/* lend - installs the completed environment, if needed; true: call take_back(). */
static bool lend(void)
{
    int kept = errno;
    if (!claim())
        return false;
    if (lent.users && environ != lent.instead) { /* the program has another by now */
        lent.users = 0;
        lent.room_bytes = 0;
    }
    bool due = lent.users || install();
    lent.users += due;
    unclaim();
    errno = kept;
    return due;
}

/* take_back - restores the environment, unless the program has changed it meanwhile. */
static void take_back(bool due)
{
    if (!due || !claim())
        return;
    bool last = lent.users && --lent.users == 0;
    if (last && environ == lent.instead &&
        memcmp(environ, lent.as_made, environment_bytes(lent.as_made)) == 0)
        environ = lent.before;
    else if (last) /* the memory belongs to the program from now on */
        lent.room_bytes = 0;
    unclaim();
}

int system(const char *command)
{
    bool due = lend();
    int result = NEXT(system)(command);
    take_back(due);
    return result;
}

FILE *popen(const char *command, const char *mode)
{
    bool due = lend();
    FILE *result = NEXT(popen)(command, mode);
    take_back(due);
    return result;
}

int wordexp(const char *words, wordexp_t *out, int flags)
{
    bool due = lend();
    int result = NEXT(wordexp)(words, out, flags);
    take_back(due);
    return result;
}
