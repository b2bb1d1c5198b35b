/* wait_ready.c - waiting until an agent is ready, fails or stops responding. */
#include "launcher.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    YOUNG_SLICE_MS = 20,       /* while the agent has no segments yet */
    YOUNG_MS_MAX = 60 * 1000,  /* Python may be loaded from a busy file system */
    ENDING_MS_MAX = 30 * 1000, /* an agent that ends still merges its report */
    LAST_LINE_MS = 1000,       /* between the first line of an error and its last */
    COMMAND_BYTES_MAX = 65536,
    WORDS_MAX = 1024,
    LINE_BYTES_MAX = 400, /* of a log, in a message */
};

static struct outcome not_responding(void)
{
    return outcome_of(OUTCOME_PLAIN, "the agent is not responding");
}

static struct outcome segments_unusable(const struct run *run, int err)
{
    return outcome_of(OUTCOME_PLAIN, "cannot use the segments in %s: %s", run->dir.path,
                      err == -EPROTO ? "the agent has another version"
                                     : strerror(err ? -err : ENOENT));
}

/* -- An agent that this launcher has started -- */

/* refused - prints an error of the configuration to its last line. */
static struct outcome refused(struct run *run, struct notice notice)
{
    struct outcome outcome = outcome_of(OUTCOME_REFUSED, "%s", notice.text);

    outcome.code = notice.code;
    while (notice.kind == NOTICE_FAIL || run->notices.fd >= 0) {
        if (notice.kind == NOTICE_FAIL)
            message_error("%s", notice.text);
        notice = notices_next(&run->notices);
        if (notice.kind == NOTICE_NONE && !notices_read(&run->notices, LAST_LINE_MS))
            break;
    }
    return outcome;
}

static struct outcome outcome_by_agent(const char *text)
{
    struct outcome outcome = outcome_of(OUTCOME_PLAIN, "%s", text);

    outcome.by_agent = true;
    return outcome;
}

/* read_notices - acts on the lines that have arrived; OUTCOME_NONE if none decides. */
static struct outcome read_notices(struct run *run)
{
    for (;;) {
        struct notice notice = notices_next(&run->notices);

        switch (notice.kind) {
        case NOTICE_NONE:
            return (struct outcome){.kind = OUTCOME_NONE};
        case NOTICE_PROGRESS:
            message_progress(notice.text);
            break;
        case NOTICE_WARN:
            message_warn("%s", notice.text);
            break;
        case NOTICE_SAY:
            message_line(notice.text);
            break;
        case NOTICE_READY:
            if (*notice.text) /* else another node prints it for the job */
                message_note(notice.text);
            return (struct outcome){.kind = OUTCOME_STAGED};
        case NOTICE_LATE:
            if (run->args.strict) /* a catalog is not certain yet */
                break;
            message_note(notice.text);
            return (struct outcome){.kind = OUTCOME_STAGED};
        case NOTICE_PLAIN:
            return outcome_of(OUTCOME_PLAIN, "%s", notice.text);
        case NOTICE_FAIL:
            if (notice.code != EXIT_MONARCH)
                return refused(run, notice);
            return outcome_by_agent(notice.text);
        case NOTICE_DONE:
        case NOTICE_UNKNOWN:
            break; /* of a newer agent */
        }
    }
}

/* map_and_unlock - maps the segments as soon as they exist, and then releases the lock, so
 * that other launchers can find the agent. */
static int map_and_unlock(struct run *run, int *lock)
{
    int err = run->segments.requests ? 0 : segments_map(&run->segments, run->dir.fd);

    if (!err && *lock >= 0) {
        close(*lock);
        *lock = -1;
    }
    return err == -EAGAIN ? 0 : err;
}

/* ended_early - reports that the agent has ended, with the last line and the name of its log. */
static struct outcome ended_early(const struct run *run)
{
    char line[LINE_BYTES_MAX];

    if (!outcome_log_line(run, line, sizeof(line)))
        return outcome_of(OUTCOME_PLAIN, "the agent ended before it was ready");
    return outcome_of(OUTCOME_PLAIN,
                      "the agent ended before it was ready: %s (see %s/%s)", line,
                      run->dir.path, "agent.log");
}

/* wait_started_agent - waits for the agent that this launcher has started; releases the
 * `start` lock as soon as others can find that agent. */
struct outcome wait_started_agent(struct run *run, int *lock)
{
    struct outcome outcome = {.kind = OUTCOME_NONE};
    struct heartbeat heartbeat = {0};
    int young_ms = 0;

    while (outcome.kind == OUTCOME_NONE) {
        int slice_ms = run->segments.requests ? SLICE_MS : YOUNG_SLICE_MS;
        bool received = notices_read(&run->notices, slice_ms);
        int err;

        outcome = read_notices(run);
        err = map_and_unlock(run, lock);
        if (outcome.kind == OUTCOME_STAGED && !run->segments.requests)
            outcome = segments_unusable(run, err);
        if (outcome.kind != OUTCOME_NONE)
            break;
        if (run->notices.fd < 0)
            return ended_early(run);
        if (err)
            return segments_unusable(run, err);
        if (received) {
            heartbeat.unchanged_slices = 0;
            young_ms = 0;
        } else if (run->segments.requests) {
            heartbeat_missed(&heartbeat, &run->segments);
        } else {
            young_ms += slice_ms;
        }
        if (heartbeat_lost(&heartbeat) || young_ms >= YOUNG_MS_MAX)
            return not_responding();
    }
    message_progress_end();
    return outcome;
}

/* -- An agent that another launcher has started -- */

/* map_running - maps the segments of a running agent, which may still create them. */
static struct outcome map_running(struct run *run)
{
    const struct timespec slice = {.tv_nsec = YOUNG_SLICE_MS * 1000000L};
    int err = segments_map(&run->segments, run->dir.fd);

    for (int ms = 0; err == -EAGAIN && ms < YOUNG_MS_MAX; ms += YOUNG_SLICE_MS) {
        if (!rundir_agent_alive(&run->dir))
            return (struct outcome){.kind = OUTCOME_RETRY};
        nanosleep(&slice, NULL);
        err = segments_map(&run->segments, run->dir.fd);
    }
    if (err)
        return segments_unusable(run, err);
    return (struct outcome){.kind = OUTCOME_STAGED};
}

/* starts_programs - in this state of the agent the program may start. Under --strict it waits for
 * the catalog: the agent may still end up without one. */
static bool starts_programs(const struct run *run, uint32_t state)
{
    return state == AGENT_READY || (state == AGENT_SCANNING && !run->args.strict);
}

/* wait_for_end - waits until an agent that is ending has ended, so that a new one can
 * start; it may also see that this process has registered, and become ready again. */
static struct outcome wait_for_end(struct run *run)
{
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    for (int ms = 0; ms < ENDING_MS_MAX; ms += SLICE_MS) {
        if (starts_programs(run, segments_agent_state(&run->segments)))
            return (struct outcome){.kind = OUTCOME_STAGED};
        if (!rundir_agent_alive(&run->dir))
            return (struct outcome){.kind = OUTCOME_RETRY};
        nanosleep(&slice, NULL);
    }
    return not_responding();
}

/* wait_for_state - waits while the agent starts. */
static struct outcome wait_for_state(struct run *run)
{
    struct heartbeat heartbeat = {0};

    for (;;) {
        uint32_t state = segments_agent_state(&run->segments);

        if (starts_programs(run, state))
            return (struct outcome){.kind = OUTCOME_STAGED};
        if (state == AGENT_PLAIN)
            return outcome_of(OUTCOME_PLAIN, "the agent has no catalog");
        if (state == AGENT_ENDING)
            return wait_for_end(run);
        segments_wait(&run->segments, state);
        if (!heartbeat_missed(&heartbeat, &run->segments))
            continue;
        if (!rundir_agent_alive(&run->dir)) {
            struct outcome outcome = failure_recorded(run);

            if (outcome.kind == OUTCOME_NONE)
                outcome.kind = OUTCOME_RETRY;
            return outcome;
        }
        if (heartbeat_lost(&heartbeat))
            return not_responding();
    }
}

/* split_agent_command - finds the arguments of the agent: after the verb those of `monarch agent`,
 * or after `--notify-fd 3 --` those of `run` of the launcher that started it. */
static char **split_agent_command(char *bytes, size_t length, char **words)
{
    size_t count = 0, notify = 0, verb = 0;
    static char dashes[] = "--", program[] = "program";
    char *end = bytes + length;

    for (char *word = bytes; word < end && count < WORDS_MAX;
         word += strlen(word) + 1) {
        if (!notify && !strcmp(word, "--notify-fd"))
            notify = count;
        if (!verb && !strcmp(word, "agent"))
            verb = count;
        words[count++] = word;
    }
    if (!notify) { /* it has no program, which the arguments of `run` end with */
        words[count++] = dashes;
        words[count++] = program;
    }
    words[count] = NULL;
    if (notify && count > notify + 3 && !strcmp(words[notify + 2], "--"))
        return words + notify + 3;
    return !notify && verb ? words + verb + 1 : NULL;
}

/* check_option_mismatch - warns if the running agent was started with other options: a job
 * has one configuration, that of its agent. */
static void check_option_mismatch(const struct run *run)
{
    static char bytes[COMMAND_BYTES_MAX];
    static char *words[WORDS_MAX + 3];
    char **options;
    struct arguments theirs;
    size_t length;

    if (!run->args.fingerprint)
        return;
    length = process_command((pid_t)run->segments.requests->agent_pid, bytes,
                             sizeof(bytes));
    options = split_agent_command(bytes, length, words);
    if (!options || arguments_parse(&theirs, options))
        return;
    if (theirs.fingerprint != run->args.fingerprint)
        message_warn("the agent already runs with other options; those of this command "
                     "are ignored");
}

/* wait_running_agent - waits for an agent that another launcher has started; takes
 * ownership of the `start` lock (-1 = its holder is stopped). This process registers before
 * it reads the state: an agent that ends because no process is registered sets its state
 * first and checks again after. With --wait the child registers instead. */
struct outcome wait_running_agent(struct run *run, int lock)
{
    struct outcome outcome = map_running(run);

    if (outcome.kind == OUTCOME_STAGED && !run->args.wait)
        segments_register(&run->segments, run->program.path);
    if (lock >= 0)
        close(lock);
    if (outcome.kind == OUTCOME_STAGED)
        outcome = wait_for_state(run);
    if (outcome.kind == OUTCOME_STAGED)
        check_option_mismatch(run);
    return outcome;
}
