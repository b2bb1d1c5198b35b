/* child.c - the program as our child: started, accompanied, and its fate made ours. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptor.h"
#include "farewell.h"
#include "relay.h"
#include "launcher.h"
#include "witness.h"

struct child {
    struct relay_scene scene;
    pid_t witness;
    int signals; /* signalfd of everything; all signals are blocked */
    bool ended;
    int status; /* of waitpid */
};

/* before - what the program must find as our caller has left it. */
struct before {
    sigset_t mask;
    struct sigaction sigchld;
    int death_signal;
};

/* become - turns the child into the program. */
static _Noreturn void become(struct run *run, char **envp, const struct before *before)
{
    board_register(&run->board, run->program.path);
    if (before->death_signal)
        prctl(PR_SET_PDEATHSIG, before->death_signal);
    sigaction(SIGCHLD, &before->sigchld, NULL);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
    _exit(program_exec(&run->program, envp));
}

/* let_go - closes the program's descriptors in us, except stderr: a pipe must end when
 * the program closes it. The same holds for the directory, which pins a mount. */
static void let_go(const struct run *run, int signals)
{
    int nothing = descriptor_keep(open("/dev/null", O_RDWR | O_CLOEXEC));
    const int kept[] = {signals, run->notices.fd, run->dir.fd};
    int last = run->args.quiet ? STDERR_FILENO : STDOUT_FILENO;

    for (int fd = 0; nothing >= 0 && fd <= last; fd++)
        dup2(nothing, fd);
    descriptor_close_from(STDERR_FILENO + 1, kept, 3);
    if (chdir("/"))
        return; /* then the directory stays */
}

/* give_up - leaves everything as it was, for an exec instead. */
static void give_up(struct child *child, const struct before *before)
{
    witness_end(&child->witness);
    sigaction(SIGCHLD, &before->sigchld, NULL);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

/* start - forks the program. Returns 0 or -errno. */
static int start(struct run *run, char **envp, struct child *child)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    struct before before = {.death_signal = 0};
    sigset_t all;
    pid_t pid = -1;
    int err;

    prctl(PR_GET_PDEATHSIG, &before.death_signal);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before.mask);
    sigaction(SIGCHLD, &standard, &before.sigchld); /* if ignored, nobody could wait */
    child->signals = descriptor_keep(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    child->witness = witness_start();
    err = child->signals;
    if (err >= 0) {
        pid = fork();
        err = -errno;
    }
    if (!pid)
        become(run, envp, &before);
    if (pid < 0) {
        give_up(child, &before);
        return err;
    }
    child->scene.self = getpid();
    child->scene.program = pid;
    child->scene.leads_session = getsid(0) == getpid();
    let_go(run, child->signals);
    return 0;
}

/* stop_signal - by which signal the program is stopped now, 0 = it is not. */
static int stop_signal(const struct child *child)
{
    siginfo_t info = {.si_pid = 0};

    if (waitid(P_PID, (id_t)child->scene.program, &info, WSTOPPED | WNOHANG | WNOWAIT))
        return 0;
    return info.si_pid ? info.si_status : 0;
}

static void go_on(const struct child *child)
{
    if (stop_signal(child))
        kill(child->scene.program, SIGCONT);
}

/* stop_too - stops us as the program is stopped, so that the shell sees it. Without a
 * terminal nobody would continue us, and whoever continues the program may not know us. */
static void stop_too(const struct child *child, int signo)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, before;
    int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    sigset_t pending, one;

    if (terminal < 0)
        return;
    close(terminal);
    sigpending(&pending);
    if (sigismember(&pending, SIGCONT))
        return; /* the shell was faster: that signal is handled next */
    sigemptyset(&one);
    sigaddset(&one, signo);
    sigaction(signo, &standard, &before);
    raise(signo);
    sigprocmask(SIG_UNBLOCK, &one, NULL); /* here we stand */
    sigprocmask(SIG_BLOCK, &one, NULL);
    sigaction(signo, &before, NULL);
    go_on(child);
}

/* look - sees whether the program has ended or stopped; reaps strangers too, whom we have
 * inherited as the first process of a container. */
static void look(struct child *child)
{
    int status, signo;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == child->witness)
            child->witness = -1;
        if (pid != child->scene.program)
            continue;
        child->ended = true;
        child->status = status;
    }
    signo = child->ended ? 0 : stop_signal(child);
    if (signo)
        stop_too(child, signo);
}

static void forward(const struct child *child, const struct signalfd_siginfo *got)
{
    union sigval value = {.sival_ptr = (void *)(uintptr_t)got->ssi_ptr};

    if (got->ssi_code == SI_QUEUE)
        sigqueue(child->scene.program, (int)got->ssi_signo, value);
    else
        kill(child->scene.program, (int)got->ssi_signo);
}

/* attend_signals - acts on the signals that have come. */
static void attend_signals(struct child *child)
{
    struct signalfd_siginfo got;

    while (!child->ended && read(child->signals, &got, sizeof(got)) == sizeof(got)) {
        switch (relay_duty(&child->scene, (int)got.ssi_signo, got.ssi_code,
                           (pid_t)got.ssi_pid)) {
        case RELAY_FORWARD:
            forward(child, &got);
            break;
        case RELAY_ASK:
            if (!witness_saw(&child->witness, (int)got.ssi_signo))
                forward(child, &got);
            break;
        case RELAY_CONTINUE:
            go_on(child);
            break;
        case RELAY_CHILD:
            look(child);
            break;
        case RELAY_NOTHING:
            break;
        }
    }
}

/* accompany - waits until the program has ended; meanwhile the agent may speak, as it may
 * have done in one breath with its leave to start. */
static void accompany(struct run *run, struct child *child)
{
    if (run->notices.fd >= 0)
        farewell_hear(run);
    while (!child->ended) {
        struct pollfd fds[2] = {
            {.fd = child->signals, .events = POLLIN},
            {.fd = run->notices.fd, .events = POLLIN},
        };

        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents)
            farewell_hear(run);
        attend_signals(child);
    }
}

/* share_fate - ends as the program has ended. */
static int share_fate(int status)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    struct rlimit no_core = {0};
    sigset_t one;

    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_DUMPABLE, 0); /* a core limit does not hold for a pipe */
    sigaction(WTERMSIG(status), &standard, NULL);
    raise(WTERMSIG(status));
    sigemptyset(&one);
    sigaddset(&one, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    return 128 + WTERMSIG(status); /* the first process of a container survives */
}

/* child_run - runs the program as a child, then waits for the agent's last words. Returns
 * the exit code, or -errno if the program could not be started as a child; if a signal
 * has ended the program, it ends us too. */
int child_run(struct run *run, char **envp)
{
    struct child child = {.ended = false};
    int err = start(run, envp, &child);

    if (err)
        return err;
    accompany(run, &child);
    witness_end(&child.witness);
    farewell(run, child.signals, child.status);
    return share_fate(child.status);
}
