/* farewell.c - the last words of the agent, for which the launcher stays a little. */
#include "farewell.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "run.h"
#include "words.h"

/* farewell_hear - prints what has come from the agent since it was ready. */
void farewell_hear(struct run *run)
{
    struct notice notice;

    notices_read(&run->notices, 0);
    while ((notice = notices_next(&run->notices)).kind != NOTICE_NONE) {
        if (notice.kind == NOTICE_SAY) {
            run->reported = true;
            words_raw(notice.text);
        } else if (notice.kind == NOTICE_WARN || notice.kind == NOTICE_FAIL) {
            words_warn("%s", notice.text);
        }
    }
    if (run->notices.fd < 0 && !run->reported)
        words_warn("the agent has ended without a report");
}

/* impatient - whether somebody wants us to end at once. */
static bool impatient(int signals)
{
    struct signalfd_siginfo got;

    while (read(signals, &got, sizeof(got)) == sizeof(got))
        if (got.ssi_signo == SIGINT || got.ssi_signo == SIGTERM ||
            got.ssi_signo == SIGHUP || got.ssi_signo == SIGQUIT)
            return true;
    return false;
}

/* farewell - waits until the agent has ended. The starter reads its notices to their end;
 * another launcher has none, and sees the agent's lock become free. */
void farewell(struct run *run, int signals)
{
    const bool by_notices = !run->args.wait || run->notices.fd >= 0;
    struct pulse pulse = {0};

    while (!by_notices || run->notices.fd >= 0) {
        struct pollfd fds[2] = {
            {.fd = signals, .events = POLLIN},
            {.fd = run->notices.fd, .events = POLLIN},
        };
        int ready = poll(fds, 2, SLICE_MS);

        if (ready > 0 && fds[0].revents && impatient(signals))
            return;
        if (ready > 0 && fds[1].revents) {
            farewell_hear(run);
            pulse.still = 0;
        }
        if (ready > 0 || !pulse_suspicious(&pulse, &run->board))
            continue;
        if (!by_notices && !rundir_agent_lives(&run->dir))
            return;
        if (pulse_lost(&pulse)) {
            words_warn("the agent gives no sign of life: there is no report");
            return;
        }
    }
}
