/* signals.c - a process that only stands beside us: what is sent to the whole group, or
 * by a batch system to each process of the job, is sent to it too. A signal that came to
 * us alone must be forwarded to the program; any other would reach the program twice. */
#include "witness.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descriptor.h"

/* A batch system signals one process after the other. */
enum { PATIENCE_MS = 50, SLICE_MS = 5 };

/* witness_start - forks the witness, to be called with all signals blocked. It never
 * takes a signal, so that all that it was sent stay pending; it dies with us. Returns its
 * pid, or -1: then every signal counts as ours alone. */
pid_t witness_start(void)
{
    pid_t us = getpid(), pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    descriptor_close_from(0, NULL, 0);
    while (!chdir("/") && getppid() == us)
        pause();
    _exit(0);
}

/* pending_of - the signals that wait for a whole process, as a mask; 0 = unknown. */
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

/* witness_saw - whether a signal that we have got was sent to the witness too; if so, a
 * new witness takes its place, who knows nothing of that signal. */
bool witness_saw(pid_t *witness, int signo)
{
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    for (int ms = 0; *witness > 0 && ms <= PATIENCE_MS; ms += SLICE_MS) {
        if (pending_of(*witness) >> (signo - 1) & 1) {
            witness_end(witness);
            *witness = witness_start();
            return true;
        }
        nanosleep(&slice, NULL);
    }
    return false;
}

/* witness_end - sends the witness away. */
void witness_end(pid_t *witness)
{
    if (*witness > 0 && !kill(*witness, SIGKILL))
        waitpid(*witness, NULL, 0);
    *witness = -1;
}
