/* outcome.c - an agent that could not start, remembered for the launchers beside us:
 * 64 ranks must not try one after the other what has just failed for the first. */
#include "failure.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "launcher.h"
#include "words.h"

/* note - writes the reason into the run directory; false if there is no room for it. */
static bool note(struct run *run, const struct verdict *verdict)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    int fd, written;

    if (rundir_renew(&run->dir))
        return false;
    fd = openat(run->dir.fd, "failed", flags, 0600);
    if (fd < 0)
        return false;
    written = dprintf(fd, "%d %s\n",
                      verdict->kind == VERDICT_REFUSED ? verdict->code : 0,
                      verdict->text);
    close(fd);
    return written > 0;
}

/* failure_leave - keeps the reason in the run directory, or removes a directory that
 * nobody else will ever look for (unless the agent's log in it tells more), or that the
 * file system has no room for. */
void failure_leave(struct run *run, const struct verdict *verdict)
{
    static const char *const ours[] = {"failed", "agent.log", "lock", "start"};
    struct stat log;

    if (run->dir_is_shared
            ? note(run, verdict)
            : !fstatat(run->dir.fd, "agent.log", &log, AT_SYMLINK_NOFOLLOW) &&
                  log.st_size)
        return;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        unlinkat(run->dir.fd, ours[i], 0);
    rundir_drop(&run->dir);
}

/* failure_found - the verdict of a start that has failed since we were called (an older
 * one is history), or VERDICT_NONE. Tells the user why a command is refused. */
struct verdict failure_found(const struct run *run)
{
    char text[1100], *reason;
    ssize_t n = -1;
    int code, fd = openat(run->dir.fd, "failed", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return (struct verdict){.kind = VERDICT_NONE};
    if (clock_changed_after(fd, run->begun))
        n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return (struct verdict){.kind = VERDICT_NONE};
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    code = (int)strtol(text, &reason, 10);
    struct verdict verdict = verdict_of(code ? VERDICT_REFUSED : VERDICT_PLAIN, "%s",
                                        reason + (*reason == ' '));
    verdict.code = code;
    if (code)
        words_error("%s", verdict.text);
    return verdict;
}
