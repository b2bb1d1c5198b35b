/* start_agent.c - finding the agent of this node, or starting it. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NOTIFY_FD = 3,
    ATTEMPTS_MAX = 20,
    PAUSE_MS = 10,
    COMING_MS_MAX = 3 * 1000, /* Python of `monarch agent` is loaded meanwhile */
    COMING_PAUSE_MS = 50,
};

/* -- The agent's process, which inherits nothing from the launcher -- */

/* reset_signals - restores the signals that the caller of the launcher has ignored or blocked. */
static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int signo = 1; signo <= SIGRTMAX; signo++)
        sigaction(signo, &standard, NULL); /* the kernel refuses a few, correctly */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* use_all_cpus - unbinds the agent: a rank is often bound to one CPU; the kernel reduces the set to
 * those that the job may use. */
static void use_all_cpus(void)
{
    unsigned char cpus[1024];

    memset(cpus, 0xff, sizeof(cpus));
    sched_setaffinity(0, sizeof(cpus), (cpu_set_t *)cpus);
}

/* set_descriptors - keeps only the pipe of notices, and a log for the output of Python before the
 * agent opens its own; an inherited stdout would keep mpiexec from ending. */
static void set_descriptors(const struct run *run, int pipe)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    int null = fd_above_stdio(open("/dev/null", O_RDWR | O_CLOEXEC));
    int log = fd_above_stdio(openat(run->dir.fd, "agent.log", flags, 0600));

    for (int fd = 0; fd < NOTIFY_FD; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            close(fd);
    if (log >= 0)
        dup2(log, STDERR_FILENO);
    if (pipe == NOTIFY_FD)
        fcntl(pipe, F_SETFD, 0);
    else
        dup2(pipe, NOTIFY_FD);
    fd_close_from(NOTIFY_FD + 1, NULL, 0);
}

/* agent_argv - returns the command line of the agent. If nothing names the job, it may still be
 * named by the nodes that the configuration file lists, and by the options. */
static char **agent_argv(const struct run *run, const char *python)
{
    const char *const named[] = {"agent", "--run-dir", run->dir.path, "--notify-fd",
                                 "3",     "--",        NULL};
    static char options[17];
    const char *const unnamed[] = {
        "agent", "--run-dir",   run->dir.path, "--options-fingerprint",
        options, "--notify-fd", "3",           "--",
        NULL};

    snprintf(options, sizeof(options), "%llx",
             (unsigned long long)run->args.fingerprint);
    return python_argv(python, run->job.named ? named : unnamed, run->args.all);
}

/* exec_agent - turns this process into the agent; a failure becomes a notice. */
static _Noreturn void exec_agent(const struct run *run, const char *python, int pipe)
{
    char **argv = agent_argv(run, python);
    char **envp = env_for_agent(run->envp);

    set_descriptors(run, pipe);
    reset_signals();
    use_all_cpus();
    if (argv && envp)
        python_exec(python, argv, envp);
    else
        errno = ENOMEM;
    dprintf(NOTIFY_FD, "fail 125 cannot run %s: %s\n", python, strerror(errno));
    _exit(1);
}

/* fork_agent - starts the agent without a parent, in a session of its own. Returns the read end of
 * its notices, or -errno. */
static int fork_agent(const struct run *run, const char *python)
{
    int pipe[2], reading, writing;
    pid_t middle;

    if (pipe2(pipe, O_CLOEXEC) < 0)
        return -errno;
    reading = fd_above_stdio(pipe[0]);
    writing = fd_above_stdio(pipe[1]);
    middle = reading < 0 || writing < 0 ? -1 : fork();
    if (!middle) {
        pid_t agent;

        setsid();
        agent = fork();
        if (!agent)
            exec_agent(run, python, writing);
        if (agent < 0)
            dprintf(writing, "fail 125 cannot fork: %s\n", strerror(errno));
        _exit(0);
    }
    if (middle < 0) {
        int err = -errno;

        close(reading);
        close(writing);
        return err;
    }
    close(writing);
    while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
        ;
    return reading;
}

/* start_agent - starts the agent and waits for it; takes ownership of the `start` lock. */
static struct outcome start_agent(struct run *run, int lock)
{
    char python[PATH_MAX];
    struct outcome outcome;
    int err = python_find(python);

    /* The segments of a dead agent must not be taken for those of the new one. */
    segments_supersede(run->dir.fd);
    unlinkat(run->dir.fd, "requests", 0);
    unlinkat(run->dir.fd, "counters", 0);
    if (run->dir.relocated)
        message_warn("%s; using %s", run->dir.error, run->dir.path);
    if (!err)
        err = fork_agent(run, python);
    if (err < 0) {
        outcome = outcome_of(
            OUTCOME_PLAIN, "cannot start the agent with %s: %s",
            *python ? python : "the Python beside `monarch` (is /proc mounted?)",
            strerror(-err));
    } else {
        notices_begin(&run->notices, err);
        outcome = wait_started_agent(run, &lock);
    }
    if (outcome.kind != OUTCOME_STAGED) {
        failure_record(run, &outcome);
        notices_close(&run->notices);
        segments_unmap(&run->segments);
    }
    if (lock >= 0)
        close(lock);
    return outcome;
}

/* -- A run directory whose agent is alive or has died -- */

/* programs_outlive_agent - whether the agent of this run directory has died, and programs
 * that it has served still run. */
static bool programs_outlive_agent(struct run *run)
{
    bool found = !segments_map(&run->segments, run->dir.fd) &&
                 segments_have_programs(&run->segments);

    if (!found)
        segments_unmap(&run->segments);
    return found;
}

/* open_enclosing - opens the run directory of the run that this process is part of, if its agent or
 * other programs of it are alive: no other job could notice their writes. */
static bool open_enclosing(struct run *run)
{
    const char *enclosing = getenv("MONARCH_STAGING_RUN");

    if (!enclosing || !*enclosing || rundir_join(&run->dir, enclosing))
        return false;
    run->nested = rundir_agent_alive(&run->dir) || programs_outlive_agent(run);
    segments_unmap(&run->segments);
    if (!run->nested)
        rundir_close(&run->dir);
    return run->nested;
}

/* join_programs - joins the programs that outlive their agent. A new agent would not notice their
 * writes to open files, because they have marked those before. This program sees their marks:
 * staged Files are served, all others are read from the origin. */
static bool join_programs(struct run *run)
{
    bool joins = programs_outlive_agent(run);
    uint32_t state = joins ? segments_agent_state(&run->segments) : AGENT_PLAIN;

    joins = state == AGENT_READY || state == AGENT_SCANNING;
    if (joins) {
        message_warn(
            "the agent of this job has died, but programs of the job still run: "
            "nothing more is staged until they end");
        segments_register(&run->segments, run->program.path);
    } else {
        segments_unmap(&run->segments);
    }
    return joins;
}

/* continue_without_lock - continues without the `start` lock, whose holder is stopped: the agent
 * that it has started may still run. */
static struct outcome continue_without_lock(struct run *run, pid_t holder)
{
    if (rundir_agent_alive(&run->dir))
        return wait_running_agent(run, -1);
    return outcome_of(OUTCOME_PLAIN,
                      "the process that starts the agent is stopped (pid %d)",
                      (int)holder);
}

/* attempt - finds or starts the agent in the opened run directory. */
static struct outcome attempt(struct run *run)
{
    struct outcome outcome;
    pid_t holder = 0;
    int lock = rundir_start_lock(&run->dir, &holder);

    if (lock == -ESTALE)
        return (struct outcome){.kind = OUTCOME_RETRY};
    if (lock == -ETIMEDOUT)
        return continue_without_lock(run, holder);
    if (lock < 0) {
        rundir_remove_empty(&run->dir);
        return outcome_of(OUTCOME_PLAIN, "%s/start: %s", run->dir.path,
                          strerror(-lock));
    }
    if (rundir_agent_alive(&run->dir))
        return wait_running_agent(run, lock);
    outcome = failure_recorded(run);
    if (outcome.kind == OUTCOME_NONE && join_programs(run))
        outcome.kind = OUTCOME_STAGED;
    if (outcome.kind == OUTCOME_NONE && run->nested)
        outcome = outcome_of(OUTCOME_PLAIN, "the agent of the enclosing run has died");
    if (outcome.kind == OUTCOME_NONE)
        return start_agent(run, lock);
    close(lock);
    return outcome;
}

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};

    nanosleep(&pause, NULL);
}

/* agent_may_come - this launcher has only the name of its job: the agent with the configuration may
 * still be starting beside it (`monarch agent &`). */
static bool agent_may_come(const struct run *run, const struct outcome *outcome)
{
    return outcome->kind == OUTCOME_PLAIN && outcome->by_agent && run->args.job &&
           !run->args.fingerprint && !run->nested;
}

/* attempts - finds or starts an agent, again if the one that was found has ended. */
static struct outcome attempts(struct run *run)
{
    struct outcome outcome = {.kind = OUTCOME_RETRY};

    for (int i = 0; i < ATTEMPTS_MAX && outcome.kind == OUTCOME_RETRY; i++) {
        if (i)
            sleep_ms(PAUSE_MS);
        if (!open_enclosing(run) && rundir_make(&run->dir, &run->job))
            return outcome_of(OUTCOME_PLAIN, "%s", run->dir.error);
        outcome = attempt(run);
        if (outcome.kind != OUTCOME_STAGED) {
            segments_unmap(&run->segments);
            rundir_close(&run->dir);
        }
    }
    if (outcome.kind == OUTCOME_RETRY)
        return outcome_of(OUTCOME_PLAIN, "each agent found in %s ended at once",
                          run->dir.path);
    return outcome;
}

/* find_or_start_agent - finds or starts the agent for this run, and waits until its catalog can be
 * used. If that fails, tries again for a while, because an agent may still start; until then each
 * try finds the record of the failure. */
struct outcome find_or_start_agent(struct run *run)
{
    struct outcome outcome;

    job_find(run);
    outcome = attempts(run);
    for (int ms = 0; ms < COMING_MS_MAX && agent_may_come(run, &outcome);
         ms += COMING_PAUSE_MS) {
        sleep_ms(COMING_PAUSE_MS);
        outcome = attempts(run);
    }
    return outcome;
}
