/* exec.c - the exec family: each calls one that takes an environment. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "shim/names/identity.h"
#include "shim/hooks/child_env.h"
#include "shim/base/next.h"
#include "shim/base/sys.h"

struct origin_ask {   /* an exec that may have been refused for its Replica */
    const char *path; /* NULL: the descriptor itself */
    int fd;
    char *const *argv, *const *envp;
    bool searches; /* a shell runs files without another interpreter, exec(3) */
};

/* Records the launch, calls, and removes the record if the call returns. A launch that is too long
 * only with our two variables is made without them, and unseen. */
#define EXEC(name, injected, plain)         \
    int kept = errno;                       \
    child_begin(&l, name);                  \
    int result = -1;                        \
    if (env != l.given)                     \
        result = injected;                  \
    if (env != l.given && errno == E2BIG)   \
        child_unseen(&l);                   \
    if (env == l.given || errno == E2BIG) { \
        errno = kept;                       \
        result = plain;                     \
    }                                       \
    int error = errno;                      \
    child_failed(&l);                       \
    errno = error;                          \
    return result;

/* exec_origin - executes the origin's file in place of a Replica, which is not executable, given
 * its refused name or descriptor. Returns only on failure. */
__attribute__((noinline)) static int exec_origin(const struct origin_ask *ask)
{
    const struct segments *seg = errno == EACCES ? attach_for_marking() : NULL;
    char origin[PATH_BYTES_MAX];
    uint64_t file;
    int kept = errno;
    bool found = seg && (ask->path ? identity_origin_of_path(seg, AT_FDCWD, ask->path,
                                                             origin, &file)
                                   : identity_origin_of_fd(attach_for_marking(),
                                                           ask->fd, origin, &file));
    errno = kept;
    if (!found)
        return -1;
    return ask->searches ? execvpe(origin, ask->argv, ask->envp)
                         : execve(origin, ask->argv, ask->envp);
}

static int exec_path(const char *path, char *const argv[], char *const envp[])
{
    CHILD_ENV(l, envp)
    char *const *env = child_environment(&l, path, envp);
    EXEC(path, NEXT(execve)(path, argv, env), NEXT(execve)(path, argv, envp))
}

int execve(const char *path, char *const argv[], char *const envp[])
{
    const struct origin_ask ask = {path, -1, argv, envp, false};
    exec_path(path, argv, envp);
    return exec_origin(&ask);
}

int execv(const char *path, char *const argv[])
{
    return execve(path, argv, environ);
}

static int exec_search(const char *file, char *const argv[])
{
    CHILD_ENV(l, environ)
    char *const *env = child_environment(&l, NULL, environ);
    EXEC(file, NEXT(execvpe)(file, argv, env), NEXT(execvp)(file, argv))
}

static int exec_search_in(const char *file, char *const argv[], char *const envp[])
{
    CHILD_ENV(l, envp)
    char *const *env = child_environment(&l, NULL, envp);
    EXEC(file, NEXT(execvpe)(file, argv, env), NEXT(execvpe)(file, argv, envp))
}

int execvp(const char *file, char *const argv[])
{
    const struct origin_ask ask = {file, -1, argv, environ, true};
    exec_search(file, argv);
    return strchr(file, '/') ? exec_origin(&ask) : -1;
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
    const struct origin_ask ask = {file, -1, argv, envp, true};
    exec_search_in(file, argv, envp);
    return strchr(file, '/') ? exec_origin(&ask) : -1;
}

static int exec_descriptor(int fd, char *const argv[], char *const envp[])
{
    CHILD_ENV(l, envp)
    char path[FD_NAME_BYTES];
    sys_fd_name(path, fd);
    char *const *env = child_environment(&l, path, envp);
    EXEC(path, NEXT(fexecve)(fd, argv, env), NEXT(fexecve)(fd, argv, envp))
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
    const struct origin_ask ask = {NULL, fd, argv, envp, false};
    exec_descriptor(fd, argv, envp);
    return exec_origin(&ask);
}

static int exec_at(int dirfd, const char *path, char *const argv[], char *const envp[],
                   int flags)
{
    CHILD_ENV(l, envp)
    const char *known = path[0] == '/' ? path : NULL;
    char *const *env = child_environment(&l, known, envp);
    EXEC(path, NEXT(execveat)(dirfd, path, argv, env, flags),
         NEXT(execveat)(dirfd, path, argv, envp, flags))
}

int execveat(int dirfd, const char *path, char *const argv[], char *const envp[],
             int flags)
{
    bool itself = !path[0] && (flags & AT_EMPTY_PATH);
    const struct origin_ask ask = {itself ? NULL : path, dirfd, argv, envp, false};
    exec_at(dirfd, path, argv, envp, flags);
    return itself || path[0] == '/' ? exec_origin(&ask) : -1;
}

/* Collects the words of a variable list, as many as there are, on the stack. The first
 * is read through a volatile, because headers promise that it is never NULL. */
#define COLLECT(arg, words)                                                \
    va_list rest;                                                          \
    const char *volatile first = arg;                                      \
    size_t words##_count = 0;                                              \
    va_start(rest, arg);                                                   \
    for (const char *word = first; word; word = va_arg(rest, char *))      \
        words##_count++;                                                   \
    va_end(rest);                                                          \
    char **words = __builtin_alloca((words##_count + 1) * sizeof(*words)); \
    words[0] = (char *)(uintptr_t)first;                                   \
    va_start(rest, arg);                                                   \
    for (size_t i = 1; i <= words##_count; i++)                            \
        words[i] = va_arg(rest, char *);

int execl(const char *path, const char *arg, ...)
{
    COLLECT(arg, argv)
    va_end(rest);
    return execv(path, argv);
}

int execlp(const char *file, const char *arg, ...)
{
    COLLECT(arg, argv)
    va_end(rest);
    return execvp(file, argv);
}

int execle(const char *path, const char *arg, ...)
{
    COLLECT(arg, argv)
    char *const *envp = va_arg(rest, char *const *);
    va_end(rest);
    return execve(path, argv, envp);
}
