/* child.c - the program as a child of the launcher, which ends as the program ends. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    struct signal_parties parties;
    pid_t probe;
    int signals; /* signalfd of all signals, which are blocked */
    bool ended;
    int status; /* of waitpid */
};

/* State that the program must find as the caller of the launcher left it. */
struct inherited {
    sigset_t mask;
    struct sigaction sigchld;
    int death_signal;
};

/* exec_program - turns the child into the program. */
static _Noreturn void exec_program(struct run *run, char **envp,
                                   const struct inherited *inherited)
{
    segments_register(&run->segments, run->program.path);
    if (inherited->death_signal)
        prctl(PR_SET_PDEATHSIG, inherited->death_signal);
    sigaction(SIGCHLD, &inherited->sigchld, NULL);
    sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
    _exit(program_exec(&run->program, envp));
}

/* release_descriptors - closes the program's descriptors in the launcher, except stderr: a
 * pipe must end when the program closes it. The current directory too, because it keeps a
 * file system from being unmounted. */
static void release_descriptors(const struct run *run, int signals)
{
    int null = fd_above_stdio(open("/dev/null", O_RDWR | O_CLOEXEC));
    const int kept[] = {signals, run->notices.fd, run->dir.fd};
    int last = run->args.quiet ? STDERR_FILENO : STDOUT_FILENO;

    for (int fd = 0; null >= 0 && fd <= last; fd++)
        dup2(null, fd);
    fd_close_from(STDERR_FILENO + 1, kept, 3);
    if (chdir("/"))
        return; /* then the directory stays in use */
}

/* undo - restores everything for an exec instead of a child. */
static void undo(struct child *child, const struct inherited *inherited)
{
    signal_probe_stop(&child->probe);
    sigaction(SIGCHLD, &inherited->sigchld, NULL);
    sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
}

/* start - forks the program. Returns 0 or -errno. */
static int start(struct run *run, char **envp, struct child *child)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    struct inherited inherited = {.death_signal = 0};
    sigset_t all;
    pid_t pid = -1;
    int err;

    prctl(PR_GET_PDEATHSIG, &inherited.death_signal);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &inherited.mask);
    /* If SIGCHLD is ignored, the kernel discards the exit status. */
    sigaction(SIGCHLD, &standard, &inherited.sigchld);
    child->signals = fd_above_stdio(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    child->probe = signal_probe_start();
    err = child->signals;
    if (err >= 0) {
        pid = fork();
        err = -errno;
    }
    if (!pid)
        exec_program(run, envp, &inherited);
    if (pid < 0) {
        undo(child, &inherited);
        return err;
    }
    child->parties.self = getpid();
    child->parties.program = pid;
    child->parties.leads_session = getsid(0) == getpid();
    release_descriptors(run, child->signals);
    return 0;
}

/* stop_signal - returns the signal by which the program is stopped now, 0 = it is not stopped. */
static int stop_signal(const struct child *child)
{
    siginfo_t info = {.si_pid = 0};

    if (waitid(P_PID, (id_t)child->parties.program, &info,
               WSTOPPED | WNOHANG | WNOWAIT))
        return 0;
    return info.si_pid ? info.si_status : 0;
}

static void continue_program(const struct child *child)
{
    if (stop_signal(child))
        kill(child->parties.program, SIGCONT);
}

/* stop_self - stops the launcher as the program is stopped, so that the shell sees it. Without a
 * terminal, no process would continue the launcher: the one that continues the program may not know
 * of it. */
static void stop_self(const struct child *child, int signo)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, previous;
    int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    sigset_t pending, one;

    if (terminal < 0)
        return;
    close(terminal);
    sigpending(&pending);
    if (sigismember(&pending, SIGCONT))
        return; /* the shell has continued us already: that signal is read next */
    sigemptyset(&one);
    sigaddset(&one, signo);
    sigaction(signo, &standard, &previous);
    raise(signo);
    sigprocmask(SIG_UNBLOCK, &one, NULL); /* the launcher is stopped here */
    sigprocmask(SIG_BLOCK, &one, NULL);
    sigaction(signo, &previous, NULL);
    continue_program(child);
}

/* reap - checks whether the program has ended or stopped. Reaps other processes too, which
 * the launcher inherits as the first process of a container. */
static void reap(struct child *child)
{
    int status, signo;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == child->probe)
            child->probe = -1;
        if (pid != child->parties.program)
            continue;
        child->ended = true;
        child->status = status;
    }
    signo = child->ended ? 0 : stop_signal(child);
    if (signo)
        stop_self(child, signo);
}

static void forward(const struct child *child, const struct signalfd_siginfo *got)
{
    union sigval value = {.sival_ptr = (void *)(uintptr_t)got->ssi_ptr};

    if (got->ssi_code == SI_QUEUE)
        sigqueue(child->parties.program, (int)got->ssi_signo, value);
    else
        kill(child->parties.program, (int)got->ssi_signo);
}

/* read_signals - acts on the signals that have arrived. */
static void read_signals(struct child *child)
{
    struct signalfd_siginfo got;

    while (!child->ended && read(child->signals, &got, sizeof(got)) == sizeof(got)) {
        switch (signal_policy(&child->parties, (int)got.ssi_signo, got.ssi_code,
                              (pid_t)got.ssi_pid)) {
        case SIGNAL_FORWARD:
            forward(child, &got);
            break;
        case SIGNAL_PROBE:
            if (!signal_probe_received(&child->probe, (int)got.ssi_signo))
                forward(child, &got);
            break;
        case SIGNAL_CONTINUE:
            continue_program(child);
            break;
        case SIGNAL_CHILD:
            reap(child);
            break;
        case SIGNAL_IGNORE:
            break;
        }
    }
}

/* wait_for_program - waits until the program has ended, and reads the agent's notices, some
 * of which may have arrived together with the one that the agent is ready. */
static void wait_for_program(struct run *run, struct child *child)
{
    if (run->notices.fd >= 0)
        report_read(run);
    while (!child->ended) {
        struct pollfd fds[2] = {
            {.fd = child->signals, .events = POLLIN},
            {.fd = run->notices.fd, .events = POLLIN},
        };

        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents)
            report_read(run);
        read_signals(child);
    }
}

/* exit_code - returns the exit code as a shell reports it. */
static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* end_as_program - ends by the signal that has ended the program, without a core file of
 * the launcher; else returns the program's exit code. */
static int end_as_program(int status)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    struct rlimit no_core = {0};
    sigset_t one;

    if (!WIFSIGNALED(status))
        return exit_code(status);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_DUMPABLE, 0); /* a core limit does not apply to a pipe */
    sigaction(WTERMSIG(status), &standard, NULL);
    raise(WTERMSIG(status));
    sigemptyset(&one);
    sigaddset(&one, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    return exit_code(status); /* the first process of a container survives */
}

/* child_run - runs the program as a child, then waits for the agent's report. Returns the
 * exit code, or -errno if the program could not be started as a child; a signal that has
 * ended the program ends the launcher too. */
int child_run(struct run *run, char **envp)
{
    struct child child = {.ended = false};
    int err = start(run, envp, &child);

    if (err)
        return err;
    wait_for_program(run, &child);
    segments_note_end(&run->segments, exit_code(child.status));
    signal_probe_stop(&child.probe);
    wait_for_report(run, child.signals, child.status);
    return end_as_program(child.status);
}
