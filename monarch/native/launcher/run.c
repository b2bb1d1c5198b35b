/* run.c - the verb `run`: has an agent, then becomes or accompanies the program. */
#include "launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "before.h"
#include "child.h"
#include "clock.h"
#include "inherited.h"
#include "preload.h"
#include "words.h"

enum { EXIT_USAGE = 2 };

/* disabled - whether the user has switched Monarch off. */
static bool disabled(void)
{
    const char *value = getenv("MONARCH_STAGING_DISABLE");

    return value && *value && strcmp(value, "0");
}

/* run_plain - runs the program without Monarch, unless that is forbidden. */
static int run_plain(struct run *run, const char *reason)
{
    if (run->args.strict) {
        words_error("%s", reason);
        return EXIT_OURS;
    }
    words_warn("%s; the program runs without staging", reason);
    return program_exec(&run->program, run->envp);
}

/* run_staged - runs the program under the Shim. */
static int run_staged(struct run *run)
{
    const bool started = run->notices.fd >= 0;
    char **envp = preload_add(run->envp, run->dir.path);
    int code;

    if (!envp)
        return run_plain(run, strerror(ENOMEM));
    inherited_mark(run->dir.fd);
    if (started || run->args.wait) {
        code = child_run(run, envp);
        if (code >= 0)
            return code;
        words_warn("cannot wait for the program: %s", strerror(-code));
        board_register(&run->board, run->program.path);
    }
    return program_exec(&run->program, envp);
}

/* run_command - does `monarch run`; words are those behind it. Returns the exit code, or
 * -ENOTSUP when it is Python's turn. */
int run_command(char **words, char **envp)
{
    static struct run run; /* the stack may be small */
    struct verdict verdict;
    int code;

    run.envp = envp;
    run.dir.fd = run.notices.fd = -1;
    run.begun = clock_now(CLOCK_REALTIME);
    if (arguments_parse(&run.args, words))
        return EXIT_USAGE;
    if (run.args.help)
        return -ENOTSUP;
    if (run.args.quiet)
        words_quiet();
    program_guard(&run.program);
    code = program_find(&run.program, run.args.command);
    if (code)
        return code;
    if (disabled())
        return program_exec(&run.program, envp);
    before_warn(*run.args.command);
    verdict = attend(&run);
    if (verdict.kind == VERDICT_STAGED)
        return run_staged(&run);
    if (verdict.kind == VERDICT_REFUSED)
        return verdict.code;
    return run_plain(&run, verdict.text);
}
