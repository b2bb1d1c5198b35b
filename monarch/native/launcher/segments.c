/* segments.c - a launcher's access to the agent's shared memory. */
#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/catalog.h"
#include "shared/changes.h"
#include "shared/counters.h"

enum {
    MISSED_SLICES = 5,                 /* half a second */
    LOST_SLICES = 5 * 1000 / SLICE_MS, /* five seconds */
    FD_WITHOUT_PROC_MAX = 64,
};

/* How each segment is mapped. */
static const struct mapping {
    const char *name;
    uint32_t kind;
    size_t bytes; /* of the whole segment, or of its head */
    bool whole, writable;
} REQUESTS = {"requests", SEGMENT_REQUESTS, sizeof(struct requests), true, false},
  COUNTERS = {"counters", SEGMENT_COUNTERS, sizeof(struct counters), true, true},
  CATALOG = {"catalog", SEGMENT_CATALOG, sizeof(struct catalog), false, false},
  FLAGS = {"flags", SEGMENT_FLAGS, sizeof(struct flags), false, true},
  CHANGES = {"changes", SEGMENT_FLAGS, sizeof(struct flags), false, true};

/* check_header - returns 0 if a segment is complete, -EAGAIN while the agent still creates it,
 * -EPROTO if it belongs to another version. */
static int check_header(const struct segment *seg, const struct mapping *how,
                        size_t length)
{
    if (memcmp(seg->magic, "MONARCH", sizeof(seg->magic)))
        return -EAGAIN;
    if (seg->version != LAYOUT_VERSION)
        return -EPROTO;
    return seg->kind == how->kind && seg->length == length ? 0 : -EAGAIN;
}

/* map_file - maps a file of the size that is requested. Returns 0 or -errno. */
static int map_file(int fd, const struct mapping *how, struct segment **seg)
{
    int protection = PROT_READ | (how->writable ? PROT_WRITE : 0), err;
    struct stat st;
    size_t length;
    void *at;

    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < how->bytes)
        return -EAGAIN;
    length = how->whole ? how->bytes : (size_t)st.st_size;
    at = mmap(NULL, length, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    err = check_header(at, how, length);
    if (err)
        munmap(at, length);
    else
        *seg = at;
    return err;
}

/* map - maps a segment of the run directory. Returns 0, or an error of check_header(), or
 * -errno. */
static int map(int run_fd, const struct mapping *how, struct segment **seg)
{
    int flags = (how->writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC;
    int err, fd = fd_above_stdio(openat(run_fd, how->name, flags));

    if (fd < 0)
        return fd == -ENOENT ? -EAGAIN : fd;
    err = map_file(fd, how, seg);
    close(fd);
    return err;
}

/* segments_map - maps the two segments that the agent creates first. Returns 0, -EAGAIN
 * while they are not complete, -EPROTO if they belong to another version, or -errno. */
int segments_map(struct segments *segments, int run_fd)
{
    struct segment *requests = NULL, *counters = NULL;
    int err = map(run_fd, &REQUESTS, &requests);

    if (!err)
        err = map(run_fd, &COUNTERS, &counters);
    segments->requests = (const struct requests *)requests;
    segments->counters = (struct counters *)counters;
    if (!err && (requests->generation != counters->generation ||
                 !segments->requests->agent_pid))
        err = -EAGAIN;
    if (err)
        segments_unmap(segments);
    return err;
}

/* segments_unmap - unmaps the segments. */
void segments_unmap(struct segments *segments)
{
    if (segments->requests)
        munmap((void *)segments->requests, sizeof(*segments->requests));
    if (segments->counters)
        munmap(segments->counters, sizeof(*segments->counters));
    *segments = (struct segments){0};
}

/* -- Programs -- */

/* segments_register - registers this process, so that the agent stays until it has ended. */
void segments_register(const struct segments *segments, const char *program)
{
    uint32_t pid = (uint32_t)getpid();
    struct process *slot = process_claim(segments->counters, pid, PROCESS_CLAIMED,
                                         program);

    if (slot == &segments->counters->process[0])
        return;
    slot->starttime = process_start_ticks((pid_t)pid);
    atomic_store_explicit((_Atomic uint32_t *)&slot->state, PROCESS_LAUNCHER,
                          memory_order_seq_cst);
}

/* segments_note_end - stores the exit code of a program for the agent's report; the first failure
 * is kept. */
void segments_note_end(const struct segments *segments, int code)
{
    uint32_t held = 0, ended = 1 + (uint32_t)code;

    if (!segments->counters)
        return;
    _Atomic uint32_t *status = (_Atomic uint32_t *)&segments->counters->ended_status;
    while (held <= 1 && !atomic_compare_exchange_weak(status, &held, ended))
        ;
}

static bool is_alive(const struct process *slot)
{
    uint32_t state = atomic_load((const _Atomic uint32_t *)&slot->state);
    pid_t pid = (pid_t)slot->pid;

    if (state < PROCESS_LAUNCHED || pid <= 0 || pid == getpid() ||
        (kill(pid, 0) < 0 && errno == ESRCH))
        return false;
    return !slot->starttime || slot->starttime == process_start_ticks(pid);
}

/* segments_have_programs - whether another process of the job runs on this node. */
bool segments_have_programs(const struct segments *segments)
{
    const struct counters *all = segments->counters;
    uint32_t used = atomic_load((const _Atomic uint32_t *)&all->slots_used_max);

    for (uint32_t i = 1; i < used && i < PROCESS_SLOTS; i++)
        if (is_alive(&all->process[i]))
            return true;
    return false;
}

/* -- Flags of files that were written -- */

static void supersede(int run_fd, const char *name)
{
    const uint32_t yes = 1;
    struct flags head;
    int fd = fd_above_stdio(openat(run_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));

    if (fd < 0)
        return;
    if (pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
        !memcmp(head.seg.magic, "MONARCH", sizeof(head.seg.magic)) &&
        head.seg.version == LAYOUT_VERSION && head.seg.kind == SEGMENT_FLAGS &&
        pwrite(fd, &yes, sizeof(yes), offsetof(struct flags, superseded)) < 0)
        message_warn("%s: %s", name, strerror(errno));
    close(fd);
}

/* segments_supersede - marks the flags of a dead agent as superseded: programs that mark
 * files in them then look at the same path for the flags of the next agent. */
void segments_supersede(int run_fd)
{
    supersede(run_fd, FLAGS.name);
    supersede(run_fd, CHANGES.name);
}

/* Segments for marking files as written, mapped at the first such file. */
struct marking {
    int run_fd;
    bool tried;
    struct segment *catalog, *flags, *changes;
};

/* map_marking - maps the table of changes, which exists before the catalog. The catalog is mapped
 * after a change was added to the table: see shared/changes.c. */
static void map_marking(struct marking *marking)
{
    if (!marking->tried)
        map(marking->run_fd, &CHANGES, &marking->changes);
    marking->tried = true;
}

/* mark_early - adds a file that the program has open for writing to the table of changes. */
static void mark_early(struct marking *marking, const struct stat *st)
{
    struct flags *flags = (struct flags *)marking->changes;
    const struct change_seen seen = {st->st_dev, st->st_ino, 0, CHANGED_BYTES};

    if (!flags || !changes_of(flags) || changes_add(changes_of(flags), &seen))
        return;
    for (int root = 0; root < ROOTS_MAX; root++)
        atomic_store((_Atomic uint8_t *)&flags->roots[root], MARKED_ALL);
}

/* mark_now - marks it in the catalog, if that exists by now. */
static void mark_now(struct marking *marking, const struct stat *st)
{
    if (!marking->catalog)
        map(marking->run_fd, &CATALOG, &marking->catalog);
    if (marking->catalog && !marking->flags)
        map(marking->run_fd, &FLAGS, &marking->flags);
    if (marking->catalog && marking->flags &&
        marking->catalog->generation == marking->flags->generation)
        written_mark_inode((const struct catalog *)marking->catalog,
                           (struct flags *)marking->flags, st->st_dev, st->st_ino);
}

/* mark_descriptor - marks the file of a descriptor that the program inherits, if it is
 * open for writing. */
static void mark_descriptor(struct marking *marking, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    struct stat st;

    if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY ||
        fstat(fd, &st) || !S_ISREG(st.st_mode) || fcntl(fd, F_GETFD) & FD_CLOEXEC)
        return;
    map_marking(marking);
    mark_early(marking, &st);
    mark_now(marking, &st);
}

static void unmap(struct segment *seg)
{
    if (seg)
        munmap(seg, seg->length);
}

/* segments_mark_inherited - marks the files that the program inherits open for writing. It
 * may write to them where no Shim sees it: in a static program, or in a child of one.
 * Without such a file this costs one listing of the descriptors. */
void segments_mark_inherited(int run_fd)
{
    struct marking marking = {.run_fd = run_fd};
    DIR *all = opendir("/proc/self/fd");
    struct dirent *one;

    for (int fd = 0; !all && fd < FD_WITHOUT_PROC_MAX; fd++)
        mark_descriptor(&marking, fd);
    while (all && (one = readdir(all)))
        if (one->d_name[0] != '.')
            mark_descriptor(&marking, atoi(one->d_name));
    if (all)
        closedir(all);
    unmap(marking.catalog);
    unmap(marking.flags);
    unmap(marking.changes);
}

/* -- State and heartbeat of the agent -- */

/* segments_agent_state - returns the state of the agent. */
uint32_t segments_agent_state(const struct segments *segments)
{
    return atomic_load((const _Atomic uint32_t *)&segments->requests->agent_state);
}

/* segments_wait - waits for one slice, or until the agent's state is no longer `state`. */
void segments_wait(const struct segments *segments, uint32_t state)
{
    struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    syscall(SYS_futex, &segments->requests->agent_state, FUTEX_WAIT, state, &slice,
            NULL, 0);
}

/* heartbeat_missed - checks the heartbeat, once per slice; true if the agent may be dead, because
 * it has not changed for MISSED_SLICES. */
bool heartbeat_missed(struct heartbeat *heartbeat, const struct segments *segments)
{
    uint64_t now_ns = atomic_load(
        (const _Atomic uint64_t *)&segments->requests->heartbeat_ns);

    if (now_ns == heartbeat->last_ns)
        heartbeat->unchanged_slices++;
    else
        heartbeat->unchanged_slices = 0;
    heartbeat->last_ns = now_ns;
    return heartbeat->unchanged_slices >= MISSED_SLICES;
}

/* heartbeat_lost - true when the launcher must stop waiting for this agent. */
bool heartbeat_lost(const struct heartbeat *heartbeat)
{
    return heartbeat->unchanged_slices >= LOST_SLICES;
}
