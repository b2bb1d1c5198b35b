/* outcome.c - the outcome of finding or starting an agent, and the record of a failed start for the
 * other launchers of the job: 64 ranks must not repeat, one after the other, the start that has
 * just failed for the first. */
#include "launcher.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files in the run directory of an agent that has ended in order. */
static const char *const remains[] = {"failed", "agent.log", "lock", "start"};
enum {
    REMAINS = sizeof(remains) / sizeof(remains[0]),
    TAIL_BYTES = 4096, /* of a log, in which its last line is searched */
};

/* outcome_of - returns an outcome with its reason, for one line on stderr. */
struct outcome outcome_of(enum outcome_kind kind, const char *format, ...)
{
    struct outcome outcome = {.kind = kind};
    va_list args;

    va_start(args, format);
    vsnprintf(outcome.text, sizeof(outcome.text), format, args);
    va_end(args);
    return outcome;
}

/* write_record - writes the reason into the run directory; false if that fails. */
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

/* last_line - returns the last line of a text that is not blank; ends the text there. */
static char *last_line(char *text, size_t length)
{
    size_t begin;

    while (length && strchr(" \t\r\n", text[length - 1]))
        length--;
    text[length] = '\0';
    for (begin = length; begin && text[begin - 1] != '\n';)
        begin--;
    return text + begin + strspn(text + begin, " \t");
}

/* outcome_log_line - copies the last line of the agent's log, without control characters
 * and at most size - 1 bytes of it. False if the log is empty. */
bool outcome_log_line(const struct run *run, char *line, size_t size)
{
    char text[TAIL_BYTES + 1], *from;
    int fd = openat(run->dir.fd, "agent.log", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n;
    size_t used;

    if (fd < 0)
        return false;
    n = pread(fd, text, TAIL_BYTES, end > TAIL_BYTES ? end - TAIL_BYTES : 0);
    close(fd);
    from = last_line(text, n > 0 ? (size_t)n : 0);
    used = strlen(from);
    if (used >= size)
        for (used = size - 1; used && ((unsigned char)from[used] & 0xc0) == 0x80;)
            used--; /* no part of a character */
    for (size_t i = 0; i < used; i++)
        line[i] = (unsigned char)from[i] < ' ' || from[i] == 0x7f ? '?' : from[i];
    line[used] = '\0';
    return used > 0;
}

static bool is_remains(const char *name)
{
    size_t i = 0;

    while (i < REMAINS && strcmp(name, remains[i]))
        i++;
    return i < REMAINS;
}

/* agent_was_killed - whether an agent has left files that it removes when it ends. */
static bool agent_was_killed(const struct run *run)
{
    DIR *all = opendir(run->dir.path);
    struct dirent *one;
    bool others = !all;

    while (!others && (one = readdir(all)))
        others = one->d_name[0] != '.' && !is_remains(one->d_name);
    if (all)
        closedir(all);
    return others;
}

/* failure_record - records the reason in the run directory. Keeps the directory for other launchers
 * of the job, and for people if the agent's log explains more; else, or if its file system is full,
 * removes it. The files of a killed agent stay for the next one, which recognises them by `start`,
 * and removes the Tiers as well. */
void failure_record(struct run *run, const struct outcome *outcome)
{
    if ((run->job.named || has_log(run)) && write_record(run, outcome))
        return;
    if (agent_was_killed(run))
        return;
    for (size_t i = 0; i < REMAINS; i++)
        unlinkat(run->dir.fd, remains[i], 0);
    rundir_remove_empty(&run->dir);
}

/* failure_recorded - returns the outcome of a start that has failed since this launcher started (an
 * older record is ignored), or OUTCOME_NONE. Prints why a command is refused. */
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
    outcome.by_agent = true;
    if (code)
        message_error("%s", outcome.text);
    return outcome;
}
