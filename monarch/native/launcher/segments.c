/* segments.c - what a launcher reads and writes of the agent's shared memory. */
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "descriptor.h"
#include "shared/counters.h"
#include "procstat.h"
#include "words.h"

enum {
    STILL_SUSPICIOUS = 5,             /* slices, half a second */
    STILL_LOST = 5 * 1000 / SLICE_MS, /* slices, five seconds */
};

/* check - 0 if a segment is whole; -EAGAIN while the agent is still making it. */
static int check(const struct segment *seg, uint32_t kind, size_t length)
{
    if (memcmp(seg->magic, "MONARCH", sizeof(seg->magic)))
        return -EAGAIN;
    if (seg->version != LAYOUT_VERSION)
        return -EPROTO;
    return seg->kind == kind && seg->length == length ? 0 : -EAGAIN;
}

/* map - maps a segment of a known size. Returns 0 or -errno. */
static int map(void **to, int run_fd, const char *name, size_t length, int writable)
{
    int flags = (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC;
    int fd = descriptor_keep(openat(run_fd, name, flags));
    struct stat st;
    void *at;

    if (fd < 0)
        return fd == -ENOENT ? -EAGAIN : fd;
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < length) {
        close(fd);
        return -EAGAIN;
    }
    at = mmap(NULL, length, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return -errno;
    *to = at;
    return 0;
}

/* board_map - maps the two segments that the agent makes first. Returns 0, -EAGAIN while
 * they are not complete, -EPROTO if they belong to another version, or -errno. */
int board_map(struct board *board, int run_fd)
{
    void *requests = NULL, *counters = NULL;
    int err = map(&requests, run_fd, "requests", sizeof(struct requests), 0);

    if (!err)
        err = map(&counters, run_fd, "counters", sizeof(struct counters), 1);
    board->requests = requests;
    board->counters = counters;
    if (!err)
        err = check(&board->requests->seg, SEGMENT_REQUESTS, sizeof(struct requests));
    if (!err)
        err = check(&board->counters->seg, SEGMENT_COUNTERS, sizeof(struct counters));
    if (!err && (board->requests->seg.generation != board->counters->seg.generation ||
                 !board->requests->agent_pid))
        err = -EAGAIN;
    if (err)
        board_unmap(board);
    return err;
}

/* board_unmap - forgets the segments. */
void board_unmap(struct board *board)
{
    if (board->requests)
        munmap((void *)board->requests, sizeof(*board->requests));
    if (board->counters)
        munmap(board->counters, sizeof(*board->counters));
    *board = (struct board){0};
}

/* board_register - signs this process in, so that the agent stays until it has ended. */
void board_register(const struct board *board, const char *program)
{
    uint32_t pid = (uint32_t)getpid();
    struct process *slot = process_claim(board->counters, pid, PROCESS_CLAIMED,
                                         program);

    if (slot == &board->counters->process[0])
        return;
    slot->starttime = procstat_start((pid_t)pid);
    atomic_store_explicit((_Atomic uint32_t *)&slot->state, PROCESS_LAUNCHER,
                          memory_order_seq_cst);
}

static bool lives(const struct process *slot)
{
    uint32_t state = atomic_load((const _Atomic uint32_t *)&slot->state);
    pid_t pid = (pid_t)slot->pid;

    if (state < PROCESS_LAUNCHED || pid <= 0 || pid == getpid() ||
        (kill(pid, 0) < 0 && errno == ESRCH))
        return false;
    return !slot->starttime || slot->starttime == procstat_start(pid);
}

/* board_has_programs - whether another process of the job runs on this node. */
bool board_has_programs(const struct board *board)
{
    const struct counters *all = board->counters;
    uint32_t used = atomic_load((const _Atomic uint32_t *)&all->slots_used_max);

    for (uint32_t i = 1; i < used && i < PROCESS_SLOTS; i++)
        if (lives(&all->process[i]))
            return true;
    return false;
}

/* board_supersede - tells the programs of a dead agent that nobody reads any more what
 * they mark in its flags: they look at the same path for those of the next one. */
void board_supersede(int run_fd)
{
    const uint32_t yes = 1;
    struct flags head;
    int fd = descriptor_keep(openat(run_fd, "flags", O_RDWR | O_NOFOLLOW | O_CLOEXEC));

    if (fd < 0)
        return;
    if (pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
        !memcmp(head.seg.magic, "MONARCH", sizeof(head.seg.magic)) &&
        head.seg.version == LAYOUT_VERSION && head.seg.kind == SEGMENT_FLAGS &&
        pwrite(fd, &yes, sizeof(yes), offsetof(struct flags, superseded)) < 0)
        words_warn("%s: %s", "flags", strerror(errno));
    close(fd);
}

/* board_agent_state - what the agent is doing. */
uint32_t board_agent_state(const struct board *board)
{
    return atomic_load((const _Atomic uint32_t *)&board->requests->agent_state);
}

/* board_wait - waits for one slice, or until the agent's state is no longer `state`. */
void board_wait(const struct board *board, uint32_t state)
{
    struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    syscall(SYS_futex, &board->requests->agent_state, FUTEX_WAIT, state, &slice, NULL,
            0);
}

/* pulse_suspicious - looks at the heartbeat, once per slice; true when it has stood still
 * so long that the agent may be dead. */
bool pulse_suspicious(struct pulse *pulse, const struct board *board)
{
    uint64_t beat = atomic_load(
        (const _Atomic uint64_t *)&board->requests->heartbeat_ns);

    pulse->still = beat == pulse->beat ? pulse->still + 1 : 0;
    pulse->beat = beat;
    return pulse->still >= STILL_SUSPICIOUS;
}

/* pulse_lost - true when nobody should wait for this agent any more. */
bool pulse_lost(const struct pulse *pulse)
{
    return pulse->still >= STILL_LOST;
}
