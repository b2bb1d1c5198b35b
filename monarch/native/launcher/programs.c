/* programs.c - the user's program, found as a shell finds it, and the Python that runs the
 * agent and all verbs but `run`. */
#include "launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Signals that a write of the launcher may raise: past a file size limit, or without a reader. */
static const int own_signals[OWN_SIGNALS] = {SIGXFSZ, SIGPIPE};

/* program_ignore_write_signals - ignores them, so that no message ends the launcher; the
 * program starts with the dispositions saved here. */
void program_ignore_write_signals(struct program *program)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};

    for (int i = 0; i < OWN_SIGNALS; i++)
        sigaction(own_signals[i], &ignore, &program->signals[i]);
}

static void restore_write_signals(const struct program *program)
{
    for (int i = 0; i < OWN_SIGNALS; i++)
        sigaction(own_signals[i], &program->signals[i], NULL);
}

/* check_executable - returns 0 if the path can be executed, else -errno. */
static int check_executable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* search_path - searches PATH. An entry without execute permission decides the error, but
 * a later directory may still have an executable one. */
static int search_path(struct program *program, const char *name)
{
    const char *dirs = getenv("PATH"), *end;
    int err = -ENOENT;

    for (const char *dir = dirs ? dirs : "/bin:/usr/bin";; dir = end + 1) {
        int n, found;

        end = strchrnul(dir, ':');
        n = snprintf(program->path, sizeof(program->path), "%.*s%s%s", (int)(end - dir),
                     dir, end > dir ? "/" : "", name);
        found = n < (int)sizeof(program->path) ? check_executable(program->path)
                                               : -ENAMETOOLONG;
        if (!found)
            return 0;
        if (found == -EACCES)
            err = found;
        if (!*end)
            return err;
    }
}

/* report_missing - prints why the program cannot be run; returns the exit code. */
static int report_missing(const char *name, int err)
{
    if (err == -ENOENT && !strchr(name, '/')) {
        message_error("%s: command not found", name);
        return EXIT_NOT_FOUND;
    }
    message_error("cannot run %s: %s", name, strerror(-err));
    return err == -ENOENT || err == -ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* program_find - finds the file of a command; borrows argv. Returns 0, or the exit code
 * 126 or 127 after one line. */
int program_find(struct program *program, char **argv)
{
    const char *name = argv[0];
    int err;

    program->argv = argv;
    if (!*name)
        err = -ENOENT;
    else if (!strchr(name, '/'))
        err = search_path(program, name);
    else if (strlen(name) >= sizeof(program->path))
        err = -ENAMETOOLONG;
    else
        err = check_executable(strcpy(program->path, name));
    return err ? report_missing(name, err) : 0;
}

/* exec_by_shell - executes a script that has no #! line. */
static void exec_by_shell(const struct program *program, char **envp)
{
    size_t count = 0;
    char **argv;

    while (program->argv[count])
        count++;
    argv = calloc(count + 2, sizeof(*argv));
    if (!argv)
        return;
    argv[0] = (char *)"/bin/sh";
    argv[1] = (char *)program->path;
    memcpy(argv + 2, program->argv + 1, count * sizeof(*argv));
    execve(argv[0], argv, envp);
    free(argv);
}

/* program_exec - becomes the program. If that fails, prints why and returns the exit
 * code. */
int program_exec(const struct program *program, char **envp)
{
    struct program again;
    int err;

    restore_write_signals(program);
    execve(program->path, program->argv, envp);
    if (errno == ENOEXEC)
        exec_by_shell(program, envp);
    err = -errno;
    program_ignore_write_signals(&again);
    message_error("cannot run %s: %s", program->argv[0], strerror(-err));
    return err == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* -- Python -- */

/* beside_command - finds a program in the directory of the command `monarch`; returns 0 or
 * -errno. */
static int beside_command(char path[PATH_MAX], const char *name)
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

/* python_find - finds the interpreter: MONARCH_STAGING_PYTHON, else the one beside the command
 * `monarch`. Returns 0 or -errno; path then names the missing file. */
int python_find(char path[PATH_MAX])
{
    const char *given = getenv("MONARCH_STAGING_PYTHON");

    if (given && *given) {
        if (snprintf(path, PATH_MAX, "%s", given) >= PATH_MAX)
            return -ENAMETOOLONG;
        return access(path, X_OK) < 0 ? -errno : 0;
    }
    path[0] = '\0';
    if (!beside_command(path, "python3") || !beside_command(path, "python"))
        return 0;
    return beside_command(path, "python3");
}

static size_t count_of(const char *const *words)
{
    size_t count = 0;

    while (words[count])
        count++;
    return count;
}

/* in_user_base - whether the command is installed below the user's own base directory, as by `pip
 * install --user`: then its packages are there too. */
static bool in_user_base(void)
{
    const char *home = getenv("HOME");
    char path[PATH_MAX];
    struct stat ours, theirs;

    if (!home || snprintf(path, sizeof(path), "%s/.local/bin/monarch", home) >=
                     (int)sizeof(path))
        return false;
    return !stat(path, &theirs) && !stat("/proc/self/exe", &ours) &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* python_argv - returns `python -I -m monarch HEAD TAIL`, or NULL without memory. Isolated, Python
 * imports only its own modules: none by PYTHONPATH or PYTHONHOME of another Python, which
 * environment modules set, no packages of the user, and none in the current directory. */
char **python_argv(const char *python, const char *const *head, char **tail)
{
    const char *const isolated = in_user_base() ? "-EP" : "-I";
    const char *const start[] = {python, isolated, "-m", "monarch", NULL};
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

/* python_exec - becomes Python; returns if that fails. It is a system call, because the
 * Shim of an enclosing run adds itself to the environment at an execve() that it sees: the
 * agent and `monarch clean` must see the real files of a Tier. */
void python_exec(const char *python, char **argv, char **envp)
{
    syscall(SYS_execve, python, argv, envp);
}
