/* start_agent.c - having an agent: finding this node's, or starting it. */
#include "attend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "await.h"
#include "failure.h"
#include "jobname.h"
#include "python.h"
#include "launcher.h"
#include "words.h"

enum { ATTEMPTS_MAX = 20, PAUSE_MS = 10 };

/* orphaned - the agent of this run directory has died, and programs that it served still
 * run. */
static bool orphaned(struct run *run)
{
    bool has = !board_map(&run->board, run->dir.fd) && board_has_programs(&run->board);

    if (!has)
        board_unmap(&run->board);
    return has;
}

/* open_parent - opens the run directory of the run that we are inside of, if its agent or
 * other programs of it live: what those write, no other job would learn. */
static bool open_parent(struct run *run)
{
    const char *parent = getenv("MONARCH_STAGING_RUN");

    if (!parent || !*parent || rundir_join(&run->dir, parent))
        return false;
    run->nested = rundir_agent_lives(&run->dir) || orphaned(run);
    board_unmap(&run->board);
    if (!run->nested)
        rundir_close(&run->dir);
    return run->nested;
}

/* join_orphans - joins the programs of a dead agent. A new one would not learn what they
 * write by descriptors that they have, since they have marked it before: this program
 * sees their marks. What is staged is served, all else is the origin's. */
static bool join_orphans(struct run *run)
{
    bool joins = orphaned(run) && board_agent_state(&run->board) == AGENT_READY;

    if (joins) {
        words_warn("the agent of this job has died, and programs that it served still "
                   "run: nothing more is staged until they have ended");
        board_register(&run->board, run->program.path);
    } else {
        board_unmap(&run->board);
    }
    return joins;
}

/* start - starts the agent and waits for it; takes ownership of the `start` lock. */
static struct verdict start(struct run *run, int lock)
{
    char python[PATH_MAX];
    struct verdict verdict;
    int err = python_find(python);

    /* What a dead agent has left must not be taken for the new one's. */
    board_supersede(run->dir.fd);
    unlinkat(run->dir.fd, "requests", 0);
    unlinkat(run->dir.fd, "counters", 0);
    if (run->dir.moved)
        words_warn("%s; using %s", run->dir.fault, run->dir.path);
    if (!err)
        err = agent_start(run, python);
    if (err < 0) {
        verdict = verdict_of(VERDICT_PLAIN, "cannot start the agent with %s: %s",
                             *python ? python
                                     : "the Python beside us (is /proc there?)",
                             strerror(-err));
    } else {
        notices_begin(&run->notices, err);
        verdict = await_notices(run, &lock);
    }
    if (verdict.kind != VERDICT_STAGED) {
        failure_leave(run, &verdict);
        notices_close(&run->notices);
        board_unmap(&run->board);
    }
    if (lock >= 0)
        close(lock);
    return verdict;
}

/* pass_by - does without the `start` lock, whose holder stands still: the agent that it
 * has started may be there all the same. */
static struct verdict pass_by(struct run *run, pid_t holder)
{
    if (rundir_agent_lives(&run->dir))
        return await_state(run, -1);
    return verdict_of(VERDICT_PLAIN,
                      "the process that starts the agent stands still (%d)",
                      (int)holder);
}

/* attempt - finds or starts the agent in the opened run directory. */
static struct verdict attempt(struct run *run)
{
    struct verdict verdict;
    pid_t holder = 0;
    int lock = rundir_start_lock(&run->dir, &holder);

    if (lock == -ESTALE)
        return (struct verdict){.kind = VERDICT_AGAIN};
    if (lock == -ETIMEDOUT)
        return pass_by(run, holder);
    if (lock < 0) {
        rundir_drop(&run->dir);
        return verdict_of(VERDICT_PLAIN, "%s/start: %s", run->dir.path,
                          strerror(-lock));
    }
    if (rundir_agent_lives(&run->dir))
        return await_state(run, lock);
    verdict = failure_found(run);
    if (verdict.kind == VERDICT_NONE && join_orphans(run))
        verdict.kind = VERDICT_STAGED;
    if (verdict.kind == VERDICT_NONE && run->nested)
        verdict = verdict_of(VERDICT_PLAIN,
                             "the agent of the run that this is part of has died");
    if (verdict.kind == VERDICT_NONE)
        return start(run, lock);
    close(lock);
    return verdict;
}

/* attend - has an agent for this run, and says whether its catalog can be used. */
struct verdict attend(struct run *run)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    struct verdict verdict = {.kind = VERDICT_AGAIN};
    struct jobname name;

    jobname_find(&name, &run->args);
    run->dir_is_shared = name.shared;
    for (int i = 0; i < ATTEMPTS_MAX && verdict.kind == VERDICT_AGAIN; i++) {
        if (!open_parent(run) && rundir_make(&run->dir, &name))
            return verdict_of(VERDICT_PLAIN, "%s", run->dir.fault);
        verdict = attempt(run);
        if (verdict.kind != VERDICT_STAGED) {
            board_unmap(&run->board);
            rundir_close(&run->dir);
        }
        if (verdict.kind == VERDICT_AGAIN)
            nanosleep(&pause, NULL);
    }
    if (verdict.kind == VERDICT_AGAIN)
        return verdict_of(VERDICT_PLAIN, "agents come and go in %s", run->dir.path);
    return verdict;
}
