/* agent.c - starting the agent of this node: a process that inherits nothing from us. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptor.h"
#include "preload.h"
#include "python.h"
#include "launcher.h"

enum { NOTIFY_FD = 3 };

/* forget_signals - undoes what our caller has ignored or blocked. */
static void forget_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int signo = 1; signo <= SIGRTMAX; signo++)
        sigaction(signo, &standard, NULL); /* refused for a few, which is as well */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* use_all_cpus - a rank is often bound to one CPU; the kernel cuts the set down to those
 * that the job may use. */
static void use_all_cpus(void)
{
    unsigned char cpus[1024];

    memset(cpus, 0xff, sizeof(cpus));
    sched_setaffinity(0, sizeof(cpus), (cpu_set_t *)cpus);
}

/* set_descriptors - leaves the notices' pipe, and a log for what Python says before the
 * agent has its own; an inherited stdout would keep mpiexec from ending. */
static void set_descriptors(const struct run *run, int pipe)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    int nothing = descriptor_keep(open("/dev/null", O_RDWR | O_CLOEXEC));
    int log = descriptor_keep(openat(run->dir.fd, "agent.log", flags, 0600));

    for (int fd = 0; fd < NOTIFY_FD; fd++)
        if (nothing < 0 || dup2(nothing, fd) < 0)
            close(fd);
    if (log >= 0)
        dup2(log, STDERR_FILENO);
    if (pipe == NOTIFY_FD)
        fcntl(pipe, F_SETFD, 0);
    else
        dup2(pipe, NOTIFY_FD);
    descriptor_close_from(NOTIFY_FD + 1, NULL, 0);
}

/* become - turns this process into the agent; if that fails, tells the launcher. */
static _Noreturn void become(const struct run *run, const char *python, int pipe)
{
    const char *const head[] = {"agent", "--run-dir", run->dir.path, "--notify-fd",
                                "3",     "--",        NULL};
    char **argv = python_argv(python, head, run->args.all);
    char **envp = preload_none(run->envp);

    set_descriptors(run, pipe);
    forget_signals();
    use_all_cpus();
    if (argv && envp)
        python_exec(python, argv, envp);
    else
        errno = ENOMEM;
    dprintf(NOTIFY_FD, "fail 125 cannot run %s: %s\n", python, strerror(errno));
    _exit(1);
}

/* agent_start - starts the agent as nobody's child, in a session of its own. Returns the
 * reading end of its notices, or -errno. */
int agent_start(const struct run *run, const char *python)
{
    int pipe[2], reading, writing;
    pid_t middle;

    if (pipe2(pipe, O_CLOEXEC) < 0)
        return -errno;
    reading = descriptor_keep(pipe[0]);
    writing = descriptor_keep(pipe[1]);
    middle = reading < 0 || writing < 0 ? -1 : fork();
    if (!middle) {
        pid_t agent;

        setsid();
        agent = fork();
        if (!agent)
            become(run, python, writing);
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
