/* wait_ready.c - waiting until an agent is ready, fails or falls silent. */
#include "await.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "difference.h"
#include "failure.h"
#include "launcher.h"
#include "words.h"

enum {
    YOUNG_SLICE_MS = 20,       /* while the agent has no segments yet */
    YOUNG_MS_MAX = 60 * 1000,  /* Python may be loaded from a busy file system */
    ENDING_MS_MAX = 30 * 1000, /* an agent that ends still merges its report */
    LAST_WORDS_MS = 1000,      /* between the first line of an error and its last */
};

static struct verdict silent(void)
{
    return verdict_of(VERDICT_PLAIN, "the agent gives no sign of life");
}

/* refuse - prints an error of the configuration to its last line. */
static struct verdict refuse(struct run *run, struct notice notice)
{
    struct verdict verdict = verdict_of(VERDICT_REFUSED, "%s", notice.text);

    verdict.code = notice.code;
    while (notice.kind == NOTICE_FAIL || run->notices.fd >= 0) {
        if (notice.kind == NOTICE_FAIL)
            words_error("%s", notice.text);
        notice = notices_next(&run->notices);
        if (notice.kind == NOTICE_NONE && !notices_read(&run->notices, LAST_WORDS_MS))
            break;
    }
    return verdict;
}

/* hear - acts on the lines that have come; VERDICT_NONE if none of them decides. */
static struct verdict hear(struct run *run)
{
    for (;;) {
        struct notice notice = notices_next(&run->notices);

        switch (notice.kind) {
        case NOTICE_NONE:
            return (struct verdict){.kind = VERDICT_NONE};
        case NOTICE_PROGRESS:
            words_progress(notice.text);
            break;
        case NOTICE_WARN:
            words_warn("%s", notice.text);
            break;
        case NOTICE_SAY:
            words_raw(notice.text);
            break;
        case NOTICE_READY:
            if (*notice.text) /* else another node says it for all */
                words_note(notice.text);
            return (struct verdict){.kind = VERDICT_STAGED};
        case NOTICE_PLAIN:
            return verdict_of(VERDICT_PLAIN, "%s", notice.text);
        case NOTICE_FAIL:
            if (notice.code != EXIT_OURS)
                return refuse(run, notice);
            return verdict_of(VERDICT_PLAIN, "%s", notice.text);
        case NOTICE_DONE:
        case NOTICE_UNKNOWN:
            break; /* of a newer agent */
        }
    }
}

/* meet - maps the segments as soon as they are there, and lets other launchers look. */
static int meet(struct run *run, int *lock)
{
    int err = run->board.requests ? 0 : board_map(&run->board, run->dir.fd);

    if (!err && *lock >= 0) {
        close(*lock);
        *lock = -1;
    }
    return err == -EAGAIN ? 0 : err;
}

/* ended - names the log where there is one. */
static struct verdict ended(const struct run *run)
{
    struct stat log;

    if (fstatat(run->dir.fd, "agent.log", &log, AT_SYMLINK_NOFOLLOW) || !log.st_size)
        return verdict_of(VERDICT_PLAIN, "the agent ended before it was ready");
    return verdict_of(VERDICT_PLAIN, "the agent ended before it was ready: see %s/%s",
                      run->dir.path, "agent.log");
}

static struct verdict no_board(const struct run *run, int err)
{
    return verdict_of(VERDICT_PLAIN, "cannot use the segments in %s: %s", run->dir.path,
                      err == -EPROTO ? "the agent is of another version"
                                     : strerror(err ? -err : ENOENT));
}

/* await_notices - waits for the agent that we have started; gives the `start` lock back
 * as soon as others can find that agent. */
struct verdict await_notices(struct run *run, int *lock)
{
    struct verdict verdict = {.kind = VERDICT_NONE};
    struct pulse pulse = {0};
    int young_ms = 0;

    while (verdict.kind == VERDICT_NONE) {
        int slice_ms = run->board.requests ? SLICE_MS : YOUNG_SLICE_MS;
        bool came = notices_read(&run->notices, slice_ms);
        int err;

        verdict = hear(run);
        err = meet(run, lock);
        if (verdict.kind == VERDICT_STAGED && !run->board.requests)
            verdict = no_board(run, err);
        if (verdict.kind != VERDICT_NONE)
            break;
        if (run->notices.fd < 0)
            return ended(run);
        if (err)
            return no_board(run, err);
        if (came) {
            pulse.still = 0;
            young_ms = 0;
        } else if (run->board.requests) {
            pulse_suspicious(&pulse, &run->board);
        } else {
            young_ms += slice_ms;
        }
        if (pulse_lost(&pulse) || young_ms >= YOUNG_MS_MAX)
            return silent();
    }
    words_raw(NULL);
    return verdict;
}

/* find_board - maps the segments of an agent that somebody else has started. */
static struct verdict find_board(struct run *run)
{
    const struct timespec slice = {.tv_nsec = YOUNG_SLICE_MS * 1000000L};
    int err = board_map(&run->board, run->dir.fd);

    for (int ms = 0; err == -EAGAIN && ms < YOUNG_MS_MAX; ms += YOUNG_SLICE_MS) {
        if (!rundir_agent_lives(&run->dir))
            return (struct verdict){.kind = VERDICT_AGAIN};
        nanosleep(&slice, NULL);
        err = board_map(&run->board, run->dir.fd);
    }
    if (err)
        return no_board(run, err);
    return (struct verdict){.kind = VERDICT_STAGED};
}

/* outlive - waits until an agent that ends has gone, to start a new one; it may also
 * have seen us sign in and go on. */
static struct verdict outlive(struct run *run)
{
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    for (int ms = 0; ms < ENDING_MS_MAX; ms += SLICE_MS) {
        if (board_agent_state(&run->board) == AGENT_READY)
            return (struct verdict){.kind = VERDICT_STAGED};
        if (!rundir_agent_lives(&run->dir))
            return (struct verdict){.kind = VERDICT_AGAIN};
        nanosleep(&slice, NULL);
    }
    return silent();
}

/* watch - waits while the agent is starting. */
static struct verdict watch(struct run *run)
{
    struct pulse pulse = {0};

    for (;;) {
        uint32_t state = board_agent_state(&run->board);

        if (state == AGENT_READY)
            return (struct verdict){.kind = VERDICT_STAGED};
        if (state == AGENT_PLAIN)
            return verdict_of(VERDICT_PLAIN, "the agent has no catalog");
        if (state == AGENT_ENDING)
            return outlive(run);
        board_wait(&run->board, state);
        if (!pulse_suspicious(&pulse, &run->board))
            continue;
        if (!rundir_agent_lives(&run->dir)) {
            struct verdict verdict = failure_found(run);

            if (verdict.kind == VERDICT_NONE)
                verdict.kind = VERDICT_AGAIN;
            return verdict;
        }
        if (pulse_lost(&pulse))
            return silent();
    }
}

/* await_state - waits for an agent that somebody else has started; takes ownership of
 * the `start` lock (-1 = its holder stands still). We sign in before we look at the state: an agent that has seen nobody
 * and ends says so first and looks for us after. With --wait the child signs in. */
struct verdict await_state(struct run *run, int lock)
{
    struct verdict verdict = find_board(run);

    if (verdict.kind == VERDICT_STAGED && !run->args.wait)
        board_register(&run->board, run->program.path);
    if (lock >= 0)
        close(lock);
    if (verdict.kind == VERDICT_STAGED)
        verdict = watch(run);
    if (verdict.kind == VERDICT_STAGED)
        difference_warn(run);
    return verdict;
}
