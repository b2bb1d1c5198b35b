/* main.c - the command `monarch`: it does the verb `run` itself and leaves every other verb
 * to Python. */
#include "launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* monarch_disabled - whether the user has switched Monarch off. */
static bool monarch_disabled(void)
{
    const char *value = getenv("MONARCH_STAGING_DISABLE");

    return value && *value && strcmp(value, "0");
}

/* mpi_order_check - warns if the program is itself a launcher of programs on several nodes:
 * it passes the environment on to nodes that have neither the agent nor the Shim which the
 * environment names. */
static void mpi_order_check(const char *program)
{
    static const char *const launchers[] = {"srun",    "mpiexec", "mpirun",
                                            "prterun", "aprun",   "jsrun"};
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;

    if (!nodes || !*nodes || !strcmp(nodes, "1"))
        return;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (!strcmp(name, launchers[i]))
            message_warn("%s starts programs on other nodes too, which have no agent: "
                         "run `%s ... monarch run ...` instead",
                         name, name);
}

/* run_plain - runs the program without Monarch, unless --strict forbids it. */
static int run_plain(struct run *run, const char *reason)
{
    if (run->args.strict) {
        message_error("%s", reason);
        return EXIT_MONARCH;
    }
    message_warn("%s; the program runs without staging", reason);
    return program_exec(&run->program, run->envp);
}

/* run_staged - runs the program under the Shim. */
static int run_staged(struct run *run)
{
    const bool started = run->notices.fd >= 0;
    char **envp = env_for_program(run->envp, run->dir.path);
    int code;

    if (!envp)
        return run_plain(run, strerror(ENOMEM));
    segments_mark_inherited(run->dir.fd);
    if (started || run->args.wait) {
        code = child_run(run, envp);
        if (code >= 0)
            return code;
        message_warn("cannot wait for the program: %s", strerror(-code));
        segments_register(&run->segments, run->program.path);
    }
    return program_exec(&run->program, envp);
}

/* run_verb - does `monarch run`; words are the arguments after `run`. Returns the exit code,
 * or -ENOTSUP if Python must do it. */
static int run_verb(char **words, char **envp)
{
    static struct run run; /* the limit of the stack may be small */
    struct outcome outcome;
    int code;

    run.envp = envp;
    run.dir.fd = run.notices.fd = -1;
    run.started = clock_now(CLOCK_REALTIME);
    if (arguments_parse(&run.args, words))
        return EXIT_USAGE;
    if (run.args.help)
        return -ENOTSUP;
    if (run.args.quiet)
        message_set_quiet();
    program_ignore_write_signals(&run.program);
    code = program_find(&run.program, run.args.command);
    if (code)
        return code;
    if (monarch_disabled()) {
        message_note(
            "MONARCH_STAGING_DISABLE is set: the program runs without staging");
        return program_exec(&run.program, envp);
    }
    mpi_order_check(*run.args.command);
    outcome = find_or_start_agent(&run);
    if (outcome.kind == OUTCOME_STAGED)
        return run_staged(&run);
    if (outcome.kind == OUTCOME_REFUSED)
        return outcome.code;
    return run_plain(&run, outcome.text);
}

/* exec_verb - becomes `python -I -m monarch ARGUMENTS`, without the Shim. */
static int exec_verb(char **arguments, char **envp)
{
    const char *const nothing[] = {NULL};
    char path[PATH_MAX], **argv;
    int err = python_find(path);

    if (!err) {
        argv = python_argv(path, nothing, arguments);
        envp = env_for_python(envp);
        if (argv && envp)
            python_exec(path, argv, envp);
        err = argv && envp ? -errno : -ENOMEM;
    }
    message_error(
        "cannot run Python at %s: %s (set MONARCH_STAGING_PYTHON to another one)",
        *path ? path : "the place of `monarch` (is /proc mounted?)", strerror(-err));
    return EXIT_MONARCH;
}

int main(int argc, char **argv, char **envp)
{
    message_init();
    if (argc > 1 && !strcmp(argv[1], "run")) {
        int code = run_verb(argv + 2, envp);

        if (code != -ENOTSUP)
            return code;
    }
    return exec_verb(argv + (argc > 0), envp);
}
