/* programs.c - the program that the user wants to run: found as a shell finds it. */
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "words.h"

/* What a write of ours may cause: a limit on the size of files, a reader that has gone. */
static const int own_signals[OWN_SIGNALS] = {SIGXFSZ, SIGPIPE};

/* program_guard - lets no line of ours be our end; the program starts with its caller's
 * dispositions all the same. */
void program_guard(struct program *program)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};

    for (int i = 0; i < OWN_SIGNALS; i++)
        sigaction(own_signals[i], &ignore, &program->signals[i]);
}

static void unguard(const struct program *program)
{
    for (int i = 0; i < OWN_SIGNALS; i++)
        sigaction(own_signals[i], &program->signals[i], NULL);
}

/* probe - 0 if the path can be executed, else -errno. */
static int probe(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* search - looks through PATH; an entry that may not be executed is remembered, but a
 * later one is still better. */
static int search(struct program *program, const char *name)
{
    const char *dirs = getenv("PATH"), *end;
    int err = -ENOENT;

    for (const char *dir = dirs ? dirs : "/bin:/usr/bin";; dir = end + 1) {
        int n, found;

        end = strchrnul(dir, ':');
        n = snprintf(program->path, sizeof(program->path), "%.*s%s%s", (int)(end - dir),
                     dir, end > dir ? "/" : "", name);
        found = n < (int)sizeof(program->path) ? probe(program->path) : -ENAMETOOLONG;
        if (!found)
            return 0;
        if (found == -EACCES)
            err = found;
        if (!*end)
            return err;
    }
}

static int tell(const char *name, int err)
{
    if (err == -ENOENT && !strchr(name, '/')) {
        words_error("%s: command not found", name);
        return EXIT_NOT_FOUND;
    }
    words_error("cannot run %s: %s", name, strerror(-err));
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
        err = search(program, name);
    else if (strlen(name) >= sizeof(program->path))
        err = -ENAMETOOLONG;
    else
        err = probe(strcpy(program->path, name));
    return err ? tell(name, err) : 0;
}

/* exec_by_shell - runs a file without a first line that names its interpreter. */
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

/* program_exec - becomes the program; if that fails, says why and returns the exit code. */
int program_exec(const struct program *program, char **envp)
{
    struct program again;
    int err;

    unguard(program);
    execve(program->path, program->argv, envp);
    if (errno == ENOEXEC)
        exec_by_shell(program, envp);
    err = -errno;
    program_guard(&again);
    words_error("cannot run %s: %s", program->argv[0], strerror(-err));
    return err == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}
