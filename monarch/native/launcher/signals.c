/* signals.c - which signals a waiting launcher forwards to the program. */
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A batch system signals one process after the other. */
enum { PROBE_TIMEOUT_MS = 50, PROBE_SLICE_MS = 5 };

/* kernel_signal - decides for a signal of the kernel: a terminal signals the whole foreground
 * group, the program included; an alarm that was set before exec reaches the launcher only, and so
 * does the hang-up of a session leader. */
static enum signal_action kernel_signal(const struct signal_parties *parties, int signo)
{
    if (signo == SIGALRM || (signo == SIGHUP && parties->leads_session))
        return SIGNAL_FORWARD;
    return SIGNAL_IGNORE;
}

/* signal_policy - decides by a signal's number, si_code and sender. */
enum signal_action signal_policy(const struct signal_parties *parties, int signo,
                                 int code, pid_t sender)
{
    if (signo == SIGCHLD)
        return SIGNAL_CHILD;
    if (signo == SIGCONT)
        return SIGNAL_CONTINUE;
    if (code > 0)
        return code == SI_KERNEL ? kernel_signal(parties, signo) : SIGNAL_IGNORE;
    if (sender == parties->self || sender == parties->program)
        return SIGNAL_IGNORE;
    return SIGNAL_PROBE;
}

/* -- The probe: a process in the launcher's group that does nothing. A signal to the whole
 *    group, or from a batch system to each process of the job, reaches the probe too. A
 *    signal to the launcher alone must be forwarded to the program; any other would reach
 *    the program twice. -- */

/* signal_probe_start - forks the probe, to be called with all signals blocked. It never
 * receives a signal, so that all that were sent stay pending; it ends with the launcher.
 * Returns its pid, or -1: then every signal is taken as sent to the launcher alone. */
pid_t signal_probe_start(void)
{
    pid_t launcher = getpid(), pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fd_close_from(0, NULL, 0);
    while (!chdir("/") && getppid() == launcher)
        pause();
    _exit(0);
}

/* pending_of - returns the signals that are pending for a whole process, as a mask; 0 = unknown. */
static unsigned long long pending_of(pid_t pid)
{
    char path[32], text[4096], *mask;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    mask = strstr(text, "\nShdPnd:");
    return mask ? strtoull(mask + strlen("\nShdPnd:"), NULL, 16) : 0;
}

/* signal_probe_received - whether a signal that the launcher has received was sent to the
 * probe too; if so, a new probe without pending signals replaces it. */
bool signal_probe_received(pid_t *probe, int signo)
{
    const struct timespec slice = {.tv_nsec = PROBE_SLICE_MS * 1000000L};

    for (int ms = 0; *probe > 0 && ms <= PROBE_TIMEOUT_MS; ms += PROBE_SLICE_MS) {
        if (pending_of(*probe) >> (signo - 1) & 1) {
            signal_probe_stop(probe);
            *probe = signal_probe_start();
            return true;
        }
        nanosleep(&slice, NULL);
    }
    return false;
}

/* signal_probe_stop - ends the probe. */
void signal_probe_stop(pid_t *probe)
{
    if (*probe > 0 && !kill(*probe, SIGKILL))
        waitpid(*probe, NULL, 0);
    *probe = -1;
}
