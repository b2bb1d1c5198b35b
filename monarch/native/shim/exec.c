/* exec.c - the exec family: each goes through one that takes an environment. */
#include <errno.h>
#include <stdarg.h>

#include "launch.h"
#include "next.h"
#include "sys.h"

/* Records the launch, calls, and takes the record back when the call returns. What is
 * too long only with our two variables is started without them. */
#define EXEC(name, injected, plain)         \
    int kept = errno;                       \
    launch_begin(&l, name);                 \
    int result = -1;                        \
    if (env != l.given)                     \
        result = injected;                  \
    if (env == l.given || errno == E2BIG) { \
        errno = kept;                       \
        result = plain;                     \
    }                                       \
    int error = errno;                      \
    launch_failed(&l);                      \
    errno = error;                          \
    return result;

int execve(const char *path, char *const argv[], char *const envp[])
{
    LAUNCH(l, envp)
    char *const *env = launch_environment(&l, path, envp);
    EXEC(path, NEXT(execve)(path, argv, env), NEXT(execve)(path, argv, envp))
}

int execv(const char *path, char *const argv[])
{
    LAUNCH(l, environ)
    char *const *env = launch_environment(&l, path, environ);
    EXEC(path, NEXT(execve)(path, argv, env), NEXT(execv)(path, argv))
}

int execvp(const char *file, char *const argv[])
{
    LAUNCH(l, environ)
    char *const *env = launch_environment(&l, NULL, environ);
    EXEC(file, NEXT(execvpe)(file, argv, env), NEXT(execvp)(file, argv))
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
    LAUNCH(l, envp)
    char *const *env = launch_environment(&l, NULL, envp);
    EXEC(file, NEXT(execvpe)(file, argv, env), NEXT(execvpe)(file, argv, envp))
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
    LAUNCH(l, envp)
    char path[FD_NAME_BYTES];
    sys_fd_name(path, fd);
    char *const *env = launch_environment(&l, path, envp);
    EXEC(path, NEXT(fexecve)(fd, argv, env), NEXT(fexecve)(fd, argv, envp))
}

int execveat(int dirfd, const char *path, char *const argv[], char *const envp[],
             int flags)
{
    LAUNCH(l, envp)
    const char *known = path[0] == '/' ? path : NULL;
    char *const *env = launch_environment(&l, known, envp);
    EXEC(path, NEXT(execveat)(dirfd, path, argv, env, flags),
         NEXT(execveat)(dirfd, path, argv, envp, flags))
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
