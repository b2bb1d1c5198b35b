/* failure.c - an agent that could not start, remembered for the launchers beside us:
 * 64 ranks must not try one after the other what has just failed for the first. */
#include "failure.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"
#include "words.h"

/* failure_leave - keeps the reason in the run directory, or removes a directory that
 * nobody else will ever look for (unless the agent's log in it tells more). */
void failure_leave(struct run *run, const struct verdict *verdict)
{
    struct stat log;
    int fd;

    if (run->dir_is_shared) {
        if (rundir_renew(&run->dir))
            return;
        fd = openat(run->dir.fd, "failed",
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return;
        dprintf(fd, "%d %s\n", verdict->kind == VERDICT_REFUSED ? verdict->code : 0,
                verdict->text);
        close(fd);
        return;
    }
    if (!fstatat(run->dir.fd, "agent.log", &log, AT_SYMLINK_NOFOLLOW) && log.st_size)
        return;
    unlinkat(run->dir.fd, "agent.log", 0);
    unlinkat(run->dir.fd, "lock", 0);
    unlinkat(run->dir.fd, "start", 0);
    rmdir(run->dir.path);
}

/* failure_found - the verdict of a start that has failed since we were called (an older
 * one is history), or VERDICT_NONE. Tells the user why a command is refused. */
struct verdict failure_found(const struct run *run)
{
    char text[1100], *reason;
    struct stat st;
    ssize_t n = -1;
    int code, fd = openat(run->dir.fd, "failed", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return (struct verdict){.kind = VERDICT_NONE};
    if (!fstat(fd, &st) && (st.st_mtim.tv_sec > run->begun.tv_sec ||
                            (st.st_mtim.tv_sec == run->begun.tv_sec &&
                             st.st_mtim.tv_nsec > run->begun.tv_nsec)))
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
