/* launcher.h - the state of one `monarch run`, and the interface of each file.
 *
 * The sections are in the order of calls: a file calls only files whose section is above its
 * own. Functions return 0 or -errno unless their comment says otherwise. */
#ifndef MONARCH_LAUNCHER_H
#define MONARCH_LAUNCHER_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "job/job.h"
#include "shared/layout.h"

/* Exit codes that a shell returns too, and 125 for a failure of Monarch under --strict. */
enum { EXIT_USAGE = 2, EXIT_MONARCH = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND };

/* -- system.c: clocks and descriptors -- */

struct timespec clock_now(clockid_t clock);
long clock_now_ms(void);
bool file_changed_after(int fd, struct timespec moment);

int fd_above_stdio(int fd);
void fd_close_from(int first, const int *kept, int count);

/* -- messages.c: lines on stderr -- */

void message_init(void);
void message_set_quiet(void);
void message_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void message_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void message_note(const char *text);
void message_line(const char *text);
void message_progress(const char *text);
void message_progress_terminal(const char *text);
void message_progress_end(void);

/* -- args.c: the command line of `monarch run` -- */

enum { OPTIONS_MAX = 32 };

struct arguments {
    char **all;     /* all arguments of `run`, passed on to the agent */
    char **command; /* the program and its arguments; NULL with --help */
    const char *job, *hosts, *config; /* NULL = not given */
    bool help, quiet, strict, wait;
    uint64_t values[OPTIONS_MAX]; /* fingerprint of each option's values, 0 = none */
    uint64_t fingerprint; /* of all options that configure the agent, 0 = none */
};

int arguments_parse(struct arguments *args, char **words);

/* -- programs.c: the user's program and Python, found and executed -- */

enum { OWN_SIGNALS = 2 };

struct program {
    char **argv;
    char path[PATH_MAX];
    struct sigaction
        signals[OWN_SIGNALS]; /* dispositions at the start of the launcher */
};

void program_ignore_write_signals(struct program *program);
int program_find(struct program *program, char **argv);
int program_exec(const struct program *program, char **envp);

int python_find(char path[PATH_MAX]);
char **python_argv(const char *python, const char *const *head, char **tail);
void python_exec(const char *python, char **argv, char **envp);

/* -- env.c: environments of the program, of the agent and of other verbs -- */

char **env_for_program(char **envp, const char *run);
char **env_for_agent(char **envp);
char **env_for_python(char **envp);

/* -- rundir.c: the run directory of a job on this node -- */

struct job {
    char name[NAME_BYTES_MAX + 1];
    char node[NAME_BYTES_MAX + 1];
    bool named; /* other launchers of the job find the same name; else it is random */
};

struct rundir {
    int fd;
    char path[PATH_MAX];
    char error[PATH_MAX + 128]; /* why it cannot be used, after an error */
    bool relocated;             /* `error` says why it is not at its usual path */
};

int rundir_join(struct rundir *dir, const char *path);
int rundir_make(struct rundir *dir, const struct job *job);
int rundir_renew(struct rundir *dir);
bool rundir_agent_alive(const struct rundir *dir);
int rundir_start_lock(const struct rundir *dir, pid_t *holder);
void rundir_remove_empty(const struct rundir *dir);
void rundir_close(struct rundir *dir);

/* -- segments.c: the agent's shared memory -- */

enum { SLICE_MS = 100 };

struct segments {
    const struct requests *requests; /* NULL = not mapped */
    struct counters *counters;
};

/* Time since the last change of the heartbeat, in slices that this process has watched: its own
 * time is meaningless after a suspension of the whole job. */
struct heartbeat {
    uint64_t last_ns;
    unsigned unchanged_slices;
};

int segments_map(struct segments *segments, int run_fd);
void segments_unmap(struct segments *segments);
void segments_note_end(const struct segments *segments, int code);
void segments_register(const struct segments *segments, const char *program);
bool segments_have_programs(const struct segments *segments);
void segments_supersede(int run_fd);
void segments_mark_inherited(int run_fd);
uint32_t segments_agent_state(const struct segments *segments);
void segments_wait(const struct segments *segments, uint32_t state);
bool heartbeat_missed(struct heartbeat *heartbeat, const struct segments *segments);
bool heartbeat_lost(const struct heartbeat *heartbeat);

/* -- notices.c: the lines that the agent writes to the launcher that started it -- */

enum { NOTICE_BYTES_MAX = 16384 }; /* the rest of a longer line is dropped */

enum notice_kind {
    NOTICE_NONE, /* no whole line has arrived yet */
    NOTICE_UNKNOWN,
    NOTICE_PROGRESS,
    NOTICE_WARN,
    NOTICE_READY,
    NOTICE_LATE, /* the program starts before the catalog exists */
    NOTICE_FAIL,
    NOTICE_PLAIN,
    NOTICE_SAY,
    NOTICE_DONE, /* another node prints the report */
};

struct notice {
    enum notice_kind kind;
    int code;         /* of NOTICE_FAIL */
    const char *text; /* valid until the next call */
};

struct notices {
    int fd; /* -1 = at its end */
    size_t begin, end;
    bool skipping; /* the rest of a line that was too long */
    char bytes[NOTICE_BYTES_MAX];
};

void notices_begin(struct notices *notices, int fd);
bool notices_read(struct notices *notices, int timeout_ms);
struct notice notices_next(struct notices *notices);
void notices_close(struct notices *notices);

/* One `monarch run`. */
struct run {
    struct arguments args;
    struct program program;
    struct timespec
        started; /* by the clock of file times, which never run ahead of it */
    struct job job;
    struct rundir dir;
    bool nested; /* it belongs to the run that this process is part of */
    struct segments segments;
    struct notices notices; /* fd -1 = this launcher has not started the agent */
    bool reported;          /* the agent has printed its report */
    char waiting_for[256];  /* the agent's last line of progress */
    char **envp;
};

/* -- job.c: the names of the job and of this node -- */

void job_find(struct run *run);

/* -- outcome.c: the outcome of finding or starting an agent -- */

enum outcome_kind {
    OUTCOME_NONE,    /* not decided yet */
    OUTCOME_STAGED,  /* the catalog can be used, or will follow */
    OUTCOME_PLAIN,   /* Monarch cannot stage: text says why */
    OUTCOME_REFUSED, /* the command is wrong: exit with code; text says why */
    OUTCOME_RETRY,   /* that agent has ended: look for one again */
};

struct outcome {
    enum outcome_kind kind;
    int code;
    bool by_agent; /* the reason was reported by an agent that did not start */
    char text[1024];
};

struct outcome outcome_of(enum outcome_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool outcome_log_line(const struct run *run, char *line, size_t size);
void failure_record(struct run *run, const struct outcome *outcome);
struct outcome failure_recorded(const struct run *run);

/* -- wait_ready.c: waiting until an agent is ready -- */

struct outcome wait_started_agent(struct run *run, int *lock);
struct outcome wait_running_agent(struct run *run, int lock);

/* -- start_agent.c: finding or starting the agent of this node -- */

struct outcome find_or_start_agent(struct run *run);

/* -- wait_report.c: waiting for the agent's report and end -- */

void report_read(struct run *run);
void wait_for_report(struct run *run, int signals, int status);

/* -- signals.c: which signals are forwarded to the program -- */

enum signal_action {
    SIGNAL_IGNORE,   /* the program has received it too, or it is not for the program */
    SIGNAL_FORWARD,  /* the program must receive it from the launcher */
    SIGNAL_PROBE,    /* the same, unless the sender has signalled the program too */
    SIGNAL_CONTINUE, /* the program continues if it is stopped */
    SIGNAL_CHILD,    /* the program has stopped or ended */
};

struct signal_parties {
    pid_t self, program;
    bool leads_session; /* else a hang-up reaches the program too */
};

enum signal_action signal_policy(const struct signal_parties *parties, int signo,
                                 int code, pid_t sender);
pid_t signal_probe_start(void);
bool signal_probe_received(pid_t *probe, int signo);
void signal_probe_stop(pid_t *probe);

/* -- child.c: the program as a child of the launcher -- */

int child_run(struct run *run, char **envp);

#endif
