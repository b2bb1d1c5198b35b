/* wait_report.c - the last words of the agent, for which the launcher stays. On one node
 * they come at once; an agent whose Replicas other nodes still read stays as long. */
#include "farewell.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "launcher.h"
#include "words.h"

/* Others may wait for a program that has failed, and srun or mpiexec would end them: they
 * must hear of it although the agent stays for them. */
enum { FAILED_MS_MAX = 2000 };

/* farewell_hear - prints what has come from the agent since it was ready, and remembers
 * for what it waits: the terminal may still be the program's. */
void farewell_hear(struct run *run)
{
    struct notice notice;

    notices_read(&run->notices, 0);
    while ((notice = notices_next(&run->notices)).kind != NOTICE_NONE) {
        if (notice.kind == NOTICE_SAY || notice.kind == NOTICE_DONE)
            run->reported = true;
        if (notice.kind == NOTICE_SAY)
            words_raw(notice.text);
        else if (notice.kind == NOTICE_WARN || notice.kind == NOTICE_FAIL)
            words_warn("%s", notice.text);
        else if (notice.kind == NOTICE_PROGRESS)
            snprintf(run->waits_for, sizeof(run->waits_for), "%s", notice.text);
    }
    if (run->notices.fd < 0 && !run->reported)
        words_warn("the agent has ended without a report");
}

/* tell - says for what we wait, once. */
static void tell(struct run *run)
{
    if (*run->waits_for)
        words_waiting(run->waits_for);
    *run->waits_for = '\0';
}

/* impatient - whether somebody wants us to end at once; stops us if asked to. */
static bool impatient(int signals)
{
    struct signalfd_siginfo got;

    while (read(signals, &got, sizeof(got)) == sizeof(got)) {
        if (got.ssi_signo == SIGINT || got.ssi_signo == SIGTERM ||
            got.ssi_signo == SIGHUP || got.ssi_signo == SIGQUIT)
            return true;
        if (got.ssi_signo == SIGTSTP)
            raise(SIGSTOP);
    }
    return false;
}

/* dismiss - tells the agent to end too, unless a program still runs on this node. One
 * that ends already must not be killed on its last steps. */
static void dismiss(const struct run *run)
{
    if (board_agent_state(&run->board) != AGENT_ENDING &&
        !board_has_programs(&run->board) && rundir_agent_lives(&run->dir))
        kill((pid_t)run->board.requests->agent_pid, SIGTERM);
}

/* must_go - whether the program's failure has waited long enough; an agent that ends
 * waits for nobody but its report. */
static bool must_go(const struct run *run, bool failed, long begun_ms)
{
    if (!failed || clock_now_ms() - begun_ms < FAILED_MS_MAX ||
        board_agent_state(&run->board) == AGENT_ENDING)
        return false;
    words_note("the program has failed: not waiting for the end of its job");
    return true;
}

/* gone - whether there is nothing to wait for any more, seen after a silent slice. */
static bool gone(const struct run *run, struct pulse *pulse, bool by_notices)
{
    if (!pulse_suspicious(pulse, &run->board))
        return false;
    if (!by_notices && !rundir_agent_lives(&run->dir))
        return true;
    if (pulse_lost(pulse))
        words_warn("the agent gives no sign of life: there is no report");
    return pulse_lost(pulse);
}

/* farewell - waits until the agent has ended; status is the program's. The starter reads
 * its notices to their end; another launcher has none, and sees the agent's lock become
 * free. */
void farewell(struct run *run, int signals, int status)
{
    const bool by_notices = !run->args.wait || run->notices.fd >= 0;
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status);
    const long begun_ms = clock_now_ms();
    struct pulse pulse = {0};

    while ((!by_notices || run->notices.fd >= 0) && !must_go(run, failed, begun_ms)) {
        struct pollfd fds[2] = {
            {.fd = signals, .events = POLLIN},
            {.fd = run->notices.fd, .events = POLLIN},
        };
        int ready;

        tell(run);
        ready = poll(fds, 2, SLICE_MS);
        if (ready > 0 && fds[0].revents && impatient(signals)) {
            dismiss(run);
            break;
        }
        if (ready > 0 && fds[1].revents) {
            farewell_hear(run);
            pulse.still = 0;
        }
        if (ready <= 0 && gone(run, &pulse, by_notices))
            break;
    }
    words_raw(NULL);
}
