/* idle_packing.c - threads at SCHED_IDLE that compress pieces of frames.
 *
 * The kernel runs such a thread only while a processor is idle, but only within one group of the
 * scheduler: where each session is a group (sched(7), autogroup), these threads would still get
 * half of a processor. So a thread also rests after a piece that had to wait for a processor:
 * longer each time, and shorter again when processors were idle meanwhile.
 *
 * An ordinary user cannot raise the priority of a thread again. So these threads take no lock and
 * allocate nothing: they get a piece through a slot, with its coder and its memory, and a thread of
 * normal priority waits for the result. If a program needs the File meanwhile, the waiting thread
 * abandons the slot and compresses the piece itself. An abandoned slot is free again when its
 * thread has finished.
 */
#include "dataplane/transfers/idle_packing.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/frame.h"

enum {
    THREADS_MAX_IDLE = 16,
    SLOTS_EACH = 2, /* per thread: one being compressed, one waiting */
    SLOTS_MAX = SLOTS_EACH * THREADS_MAX_IDLE,
    LOWEST_NICE = 19,
    HURRY_MS = 5,    /* how often the waiting thread checks whether to hurry */
    JOIN_MS = 200,   /* threads that do not end in this time are left alone */
    REST_MAX = 64,   /* times the processor time of a piece */
    IDLE_PART = 10,  /* idle for 1/10 of a rest: the next one is shorter */
    SLICE_MS = 100,  /* least time between checks for idle processors in a rest */
    SLICES = 16,     /* most checks in a rest */
    STAT_FIELDS = 5, /* of /proc/stat: user, nice, system, idle, iowait */
    STAT_IDLE = 3,
    LINE_BYTES = 256,
};

/* The state of a slot changes by compare-and-swap. */
enum slot_state {
    SLOT_FREE,
    SLOT_OWNED, /* by the thread that fills it or reads its result */
    SLOT_FILLED,
    SLOT_RUNNING,
    SLOT_ABANDONED, /* the same, but no thread waits for the result */
    SLOT_DONE,
};

struct idle_slot {
    _Atomic uint32_t state; /* enum slot_state; a futex */
    struct coder *coder;    /* of an abandoned piece: its next owner frees it */
    uint8_t *memory;        /* 2 * PIECE_BYTES: the plain piece, then the packed one */
    size_t n, room;
    struct idle_result result;
};

struct idle_packing {
    struct idle_slot slots[SLOTS_MAX];
    uint32_t slot_count;
    _Atomic uint32_t calls;    /* a futex: changes with each piece, and at the end */
    _Atomic uint32_t stopping; /* a futex */
    pthread_t threads[THREADS_MAX_IDLE];
    uint32_t count;
    _Atomic uint32_t users; /* threads, and the engine; the last one frees it */
};

static void free_unused(struct idle_packing *p)
{
    if (atomic_fetch_sub(&p->users, 1) > 1)
        return;
    for (uint32_t i = 0; i < p->slot_count; i++) {
        monarch_coder_free(p->slots[i].coder);
        free(p->slots[i].memory);
    }
    free(p);
}

static bool change(struct idle_slot *s, enum slot_state from, enum slot_state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong(&s->state, &expected, to);
}

static void wait_on(_Atomic uint32_t *word, uint32_t value, const struct timespec *most)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most, NULL, 0);
}

static void wake_on(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* ---- the threads ------------------------------------------------------------------------- */

/* compress - compresses the piece of a slot that this thread has taken. */
static void compress(struct idle_slot *s)
{
    uint64_t began = clock_cpu_ns();
    s->result.packed = monarch_coder_pack(s->coder, s->memory, s->n,
                                          s->memory + PIECE_BYTES, s->room);
    s->result.cpu_ns = clock_cpu_ns() - began;
    if (change(s, SLOT_RUNNING, SLOT_DONE))
        wake_on(&s->state, 1);
    else
        atomic_store(&s->state, SLOT_FREE);
}

/* compress_next - compresses the next filled slot; returns its processor time, 0: none is
 * filled. */
static uint64_t compress_next(struct idle_packing *p)
{
    uint64_t began = clock_cpu_ns();
    for (uint32_t i = 0; i < p->slot_count; i++) {
        if (!change(&p->slots[i], SLOT_FILLED, SLOT_RUNNING))
            continue;
        compress(&p->slots[i]);
        return clock_cpu_ns() - began;
    }
    return 0;
}

/* read_line - reads the first line of a kernel file, from its first number on; NULL: unreadable. */
static const char *read_line(const char *path, char line[LINE_BYTES])
{
    int fd = file_openat(AT_FDCWD, path, O_RDONLY, 0);
    ssize_t got = fd < 0 ? -1 : file_read(fd, line, LINE_BYTES - 1, 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return NULL;
    line[got] = 0;
    return line + strcspn(line, "0123456789");
}

/* idle_ns - returns the idle time of all processors, added up; 0: unknown. */
static uint64_t idle_ns(void)
{
    char line[LINE_BYTES];
    const char *at = read_line("/proc/stat", line);
    uint64_t ticks = 0;
    for (int field = 0; at && field < STAT_FIELDS; field++) {
        char *end;
        uint64_t value = strtoull(at, &end, 10);
        ticks += field >= STAT_IDLE ? value : 0;
        at = end;
    }
    return ticks * (SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* waited_ns - returns how long this thread has waited for a processor; 0: unknown. */
static uint64_t waited_ns(void)
{
    char line[LINE_BYTES], *end;
    const char *at = read_line("/proc/thread-self/schedstat", line);
    if (!at)
        return 0;
    strtoull(at, &end, 10);
    return strtoull(end, NULL, 10);
}

/* rest_slice - returns how long to sleep before the next check for idle processors. */
static uint64_t rest_slice(uint64_t left_ns, uint64_t rest_ns)
{
    uint64_t slice = rest_ns / SLICES;
    slice = slice > SLICE_MS * MS_NS ? slice : SLICE_MS * MS_NS;
    return slice < left_ns ? slice : left_ns;
}

/* rest_for - sleeps for `rest` times the time of a piece, or until processors are idle or the
 * threads end. Returns the factor for the next piece: less if processors were idle meanwhile. */
static uint32_t rest_for(struct idle_packing *p, uint32_t rest, uint64_t cpu_ns)
{
    uint64_t whole = rest * cpu_ns, idle = 0, slice;
    for (uint64_t left = whole; left && !atomic_load(&p->stopping); left -= slice) {
        slice = rest_slice(left, whole);
        const struct timespec most = clock_timespec(slice);
        uint64_t before = idle_ns();
        wait_on(&p->stopping, 0, &most);
        uint64_t fresh = idle_ns() - before;
        if (fresh >= slice / 2)
            return 0;
        idle += fresh;
    }
    return idle >= whole / IDLE_PART ? rest / 2 : rest;
}

/* next_rest - returns how many times its processor time to rest after a piece: more than before if
 * it waited for more than a quarter of that time. */
static uint32_t next_rest(uint32_t rest, uint64_t waited, uint64_t cpu_ns)
{
    if (waited <= cpu_ns / 4 || cpu_ns < MS_NS)
        return rest;
    rest = rest ? 2 * rest : 1;
    return rest < REST_MAX ? rest : REST_MAX;
}

/* lower - gives this thread the lowest priority that the system has. */
static void lower(void)
{
    const struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none))
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOWEST_NICE);
}

static void *work(void *packing)
{
    struct idle_packing *p = packing;
    uint32_t rest = 0;
    lower();
    while (!atomic_load(&p->stopping)) {
        uint32_t seen = atomic_load(&p->calls);
        uint64_t waited = waited_ns(), cpu_ns = compress_next(p);
        if (!cpu_ns && !atomic_load(&p->stopping))
            wait_on(&p->calls, seen, NULL);
        if (!cpu_ns)
            continue;
        rest = next_rest(rest, waited_ns() - waited, cpu_ns);
        if (rest)
            rest = rest_for(p, rest, cpu_ns);
    }
    free_unused(p);
    return NULL;
}

/* thread_count - returns one thread for each processor, at most THREADS_MAX_IDLE. */
static uint32_t thread_count(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors < 1)
        return 1;
    return processors < THREADS_MAX_IDLE ? (uint32_t)processors : THREADS_MAX_IDLE;
}

/* start - starts the threads, with all signals blocked. */
static int start(struct idle_packing *p)
{
    uint32_t most = thread_count();
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!rc && p->count < most) {
        atomic_fetch_add(&p->users, 1);
        rc = pthread_create(&p->threads[p->count], NULL, work, p);
        if (rc)
            atomic_fetch_sub(&p->users, 1);
        else
            pthread_setname_np(p->threads[p->count++], "idle packing");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->count ? 0 : -rc;
}

/* idle_packing_new - starts the threads. A slot's memory is first touched by its first piece. */
int idle_packing_new(struct idle_packing **out)
{
    struct idle_packing *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    atomic_store(&p->users, 1);
    uint32_t wanted = SLOTS_EACH * thread_count();
    for (; p->slot_count < wanted; p->slot_count++) {
        p->slots[p->slot_count].memory = malloc(2 * PIECE_BYTES);
        if (!p->slots[p->slot_count].memory)
            break;
    }
    int rc = p->slot_count == wanted ? start(p) : -ENOMEM;
    if (rc)
        free_unused(p);
    else
        *out = p;
    return rc;
}

/* idle_packing_free - ends the threads. A thread that gets no processor in time to end its piece is
 * left alone: it uses only this memory. */
void idle_packing_free(struct idle_packing *p)
{
    struct timespec until;
    if (!p)
        return;
    atomic_store(&p->stopping, 1);
    atomic_fetch_add(&p->calls, 1);
    wake_on(&p->stopping, THREADS_MAX_IDLE);
    wake_on(&p->calls, THREADS_MAX_IDLE);
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + JOIN_MS * MS_NS;
    until.tv_sec += (time_t)(ns / SECOND_NS);
    until.tv_nsec = (long)(ns % SECOND_NS);
    for (uint32_t i = 0; i < p->count; i++)
        if (pthread_timedjoin_np(p->threads[i], NULL, &until))
            pthread_detach(p->threads[i]);
    free_unused(p);
}

/* idle_packing_threads - returns the number of its threads: one for each processor. */
uint32_t idle_packing_threads(const struct idle_packing *p)
{
    return p->count;
}

/* ---- the thread that waits --------------------------------------------------------------- */

/* take_free - takes a free slot; NULL: none. */
static struct idle_slot *take_free(struct idle_packing *p)
{
    for (uint32_t i = 0; i < p->slot_count; i++) {
        struct idle_slot *s = &p->slots[i];
        if (!change(s, SLOT_FREE, SLOT_OWNED))
            continue;
        monarch_coder_free(s->coder);
        s->coder = NULL;
        return s;
    }
    return NULL;
}

/* own - waits for a free slot; NULL: the piece is needed at once. */
static struct idle_slot *own(struct idle_packing *p, const struct idle_piece *piece)
{
    const struct timespec pause = {.tv_nsec = HURRY_MS * (long)MS_NS};
    struct idle_slot *s = take_free(p);
    while (!s && !piece->hurries(piece->of)) {
        nanosleep(&pause, NULL);
        s = take_free(p);
    }
    return s;
}

static void fill(struct idle_packing *p, struct idle_slot *s, struct coder *coder,
                 const struct idle_piece *piece)
{
    s->coder = coder;
    s->n = piece->n;
    s->room = piece->room;
    memcpy(s->memory, piece->bytes, piece->n);
    atomic_store(&s->state, SLOT_FILLED);
    atomic_fetch_add(&p->calls, 1);
    wake_on(&p->calls, 1);
}

enum waited { WAITED_DONE, WAITED_UNBEGUN, WAITED_ABANDONED };

/* await - waits for the result of a slot, or until the piece is needed at once. */
static enum waited await(struct idle_slot *s, const struct idle_piece *piece)
{
    const struct timespec most = {.tv_nsec = HURRY_MS * (long)MS_NS};
    for (;;) {
        uint32_t state = atomic_load(&s->state);
        if (state == SLOT_DONE)
            return WAITED_DONE;
        wait_on(&s->state, state, &most);
        if (!piece->hurries(piece->of))
            continue;
        if (change(s, SLOT_FILLED, SLOT_OWNED))
            return WAITED_UNBEGUN;
        if (change(s, SLOT_RUNNING, SLOT_ABANDONED))
            return WAITED_ABANDONED;
    }
}

/* idle_packing_run - compresses a piece of at most PIECE_BYTES into `out` when a processor is idle.
 * False: the piece is needed at once and the caller compresses it; `*coder` is then NULL if a
 * thread still uses it. */
bool idle_packing_run(struct idle_packing *p, struct coder **coder,
                      const struct idle_piece *piece, void *out,
                      struct idle_result *result)
{
    struct idle_slot *s = own(p, piece);
    if (!s)
        return false;
    fill(p, s, *coder, piece);
    enum waited waited = await(s, piece);
    if (waited == WAITED_ABANDONED) {
        *coder = NULL;
        return false;
    }
    *result = s->result;
    if (waited == WAITED_DONE && result->packed > 0)
        memcpy(out, s->memory + PIECE_BYTES, (size_t)result->packed);
    s->coder = NULL;
    atomic_store(&s->state, SLOT_FREE);
    return waited == WAITED_DONE;
}
