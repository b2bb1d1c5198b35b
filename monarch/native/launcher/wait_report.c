/* wait_report.c - waiting for the agent's report and end. On one node they follow the end
 * of the program at once; an agent whose Replicas other nodes still read ends later. */
#include "launcher.h"

#include <poll.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Processes on other nodes may wait for a program that has failed, until srun or mpiexec
 * ends them: its failure must be returned although the agent stays for them. */
enum { FAILED_MS_MAX = 2000 };

/* report_read - prints the agent's lines since it was ready. Its progress is stored for later: the
 * program may still use the terminal. */
void report_read(struct run *run)
{
    struct notice notice;

    notices_read(&run->notices, 0);
    while ((notice = notices_next(&run->notices)).kind != NOTICE_NONE) {
        if (notice.kind == NOTICE_SAY || notice.kind == NOTICE_DONE)
            run->reported = true;
        if (notice.kind == NOTICE_SAY)
            message_line(notice.text);
        else if (notice.kind == NOTICE_WARN || notice.kind == NOTICE_FAIL)
            message_warn("%s", notice.text);
        else if (notice.kind == NOTICE_PLAIN) /* it has started without a catalog */
            message_warn("%s; the program reads the origin", notice.text);
        else if (notice.kind == NOTICE_PROGRESS)
            snprintf(run->waiting_for, sizeof(run->waiting_for), "%s", notice.text);
    }
    if (run->notices.fd < 0 && !run->reported)
        message_warn("the agent ended without a report");
}

/* print_progress - prints what the agent waits for, once. */
static void print_progress(struct run *run)
{
    if (*run->waiting_for)
        message_progress_terminal(run->waiting_for);
    *run->waiting_for = '\0';
}

/* asked_to_end - whether a signal asks the launcher to end now; stops it if one asks for
 * that. */
static bool asked_to_end(int signals)
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

/* end_agent - ends the agent too, unless a program still runs on this node, or the agent is
 * ending already: that must not be interrupted. */
static void end_agent(const struct run *run)
{
    if (segments_agent_state(&run->segments) != AGENT_ENDING &&
        !segments_have_programs(&run->segments) && rundir_agent_alive(&run->dir))
        kill((pid_t)run->segments.requests->agent_pid, SIGTERM);
}

/* must_return - whether the failure of the program must be returned now. An agent that is
 * ending only completes its report, which is worth the wait. */
static bool must_return(const struct run *run, bool failed, long begun_ms)
{
    if (!failed || clock_now_ms() - begun_ms < FAILED_MS_MAX ||
        segments_agent_state(&run->segments) == AGENT_ENDING)
        return false;
    message_note("the program failed; not waiting for the rest of its job");
    return true;
}

/* agent_gone - whether the wait is over without a report, checked after a slice in which
 * nothing has arrived. */
static bool agent_gone(const struct run *run, struct heartbeat *heartbeat,
                       bool by_notices)
{
    if (!heartbeat_missed(heartbeat, &run->segments))
        return false;
    if (!by_notices && !rundir_agent_alive(&run->dir))
        return true;
    if (heartbeat_lost(heartbeat))
        message_warn("the agent is not responding; no report was written");
    return heartbeat_lost(heartbeat);
}

/* wait_for_report - waits until the agent has ended; status is the program's. The launcher
 * that started the agent reads its notices to their end; another one has none, and waits
 * until the agent's lock is free. */
void wait_for_report(struct run *run, int signals, int status)
{
    const bool by_notices = !run->args.wait || run->notices.fd >= 0;
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status);
    const long begun_ms = clock_now_ms();
    struct heartbeat heartbeat = {0};

    while ((!by_notices || run->notices.fd >= 0) &&
           !must_return(run, failed, begun_ms)) {
        struct pollfd fds[2] = {
            {.fd = signals, .events = POLLIN},
            {.fd = run->notices.fd, .events = POLLIN},
        };
        int ready;

        print_progress(run);
        ready = poll(fds, 2, SLICE_MS);
        if (ready > 0 && fds[0].revents && asked_to_end(signals)) {
            end_agent(run);
            break;
        }
        if (ready > 0 && fds[1].revents) {
            report_read(run);
            heartbeat.unchanged_slices = 0;
        }
        if (ready <= 0 && agent_gone(run, &heartbeat, by_notices))
            break;
    }
    message_progress_end();
}
