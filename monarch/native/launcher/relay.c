/* relay.c - what a waiting launcher does about a signal: a pure decision. */
#include "relay.h"

#include <signal.h>

/* from_kernel - a terminal signals the whole foreground group, so the program has got it;
 * an alarm that was set before exec is ours alone, and so is a session leader's hang-up. */
static enum relay_duty from_kernel(const struct relay_scene *scene, int signo)
{
    if (signo == SIGALRM || (signo == SIGHUP && scene->leads_session))
        return RELAY_FORWARD;
    return RELAY_NOTHING;
}

/* relay_duty - decides by a signal's number, si_code and sender. */
enum relay_duty relay_duty(const struct relay_scene *scene, int signo, int code,
                           pid_t sender)
{
    if (signo == SIGCHLD)
        return RELAY_CHILD;
    if (signo == SIGCONT)
        return RELAY_CONTINUE;
    if (code > 0)
        return code == SI_KERNEL ? from_kernel(scene, signo) : RELAY_NOTHING;
    if (sender == scene->self || sender == scene->program)
        return RELAY_NOTHING;
    return RELAY_ASK;
}
