/* outcome.c - the outcome of finding or starting an agent, and the record of a failed start
 * for the other launchers of the job: 64 ranks must not repeat one after the other what
 * has just failed for the first. */
#include "launcher.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* outcome_of - an outcome and its reason, for one line on stderr. */
struct outcome outcome_of(enum outcome_kind kind, const char *format, ...)
{
    struct outcome outcome = {.kind = kind};
    va_list args;

    va_start(args, format);
    vsnprintf(outcome.text, sizeof(outcome.text), format, args);
    va_end(args);
    return outcome;
}

/* write_record - writes the reason into the run directory; false without room for it. */
static bool write_record(struct run *run, const struct outcome *outcome)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    int fd, written;

    if (rundir_renew(&run->dir))
        return false;
    fd = openat(run->dir.fd, "failed", flags, 0600);
    if (fd < 0)
        return false;
    written = dprintf(fd, "%d %s\n",
                      outcome->kind == OUTCOME_REFUSED ? outcome->code : 0,
                      outcome->text);
    close(fd);
    return written > 0;
}

/* has_log - whether the agent has written more than the reason into its log. */
static bool has_log(const struct run *run)
{
    struct stat log;

    return !fstatat(run->dir.fd, "agent.log", &log, AT_SYMLINK_NOFOLLOW) && log.st_size;
}

/* failure_record - records the reason in the run directory. Removes the directory if no
 * other launcher will look for it, unless the agent's log explains more, or if its file
 * system is full. */
void failure_record(struct run *run, const struct outcome *outcome)
{
    static const char *const files[] = {"failed", "agent.log", "lock", "start"};

    if (run->job.named ? write_record(run, outcome) : has_log(run))
        return;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlinkat(run->dir.fd, files[i], 0);
    rundir_remove_empty(&run->dir);
}

/* failure_recorded - the outcome of a start that has failed since this launcher started
 * (an older record is ignored), or OUTCOME_NONE. Prints why a command is refused. */
struct outcome failure_recorded(const struct run *run)
{
    char text[1100], *reason;
    ssize_t n = -1;
    int code, fd = openat(run->dir.fd, "failed", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return (struct outcome){.kind = OUTCOME_NONE};
    if (file_changed_after(fd, run->started))
        n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return (struct outcome){.kind = OUTCOME_NONE};
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    code = (int)strtol(text, &reason, 10);
    struct outcome outcome = outcome_of(code ? OUTCOME_REFUSED : OUTCOME_PLAIN, "%s",
                                        reason + (*reason == ' '));
    outcome.code = code;
    if (code)
        message_error("%s", outcome.text);
    return outcome;
}
