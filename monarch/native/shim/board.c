/* board.c - finds, verifies and maps the segments of the job at the first use. */
#include "board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "process.h"
#include "scratch.h"
#include "shared/rights.h"
#include "sys.h"
#include "trace.h"

enum phase {
    PHASE_UNKNOWN = 0, /* nobody has looked yet */
    PHASE_OPENING,     /* one thread is looking; the others pass through */
    PHASE_OPEN,        /* files are served, and what is changed is marked */
    PHASE_LEFT,   /* what is changed is marked, for the others; nothing is served */
    PHASE_NARROW, /* the same, but the segments are mapped when something is changed */
    PHASE_INERT,
};

enum { ADDRESS_PART = 8, TURNS_MAX = 10000 };

static struct board the_board;
static _Atomic uint32_t the_phase;

/* in_run - writes the path of a file in the run directory. One descriptor at a time must
 * do: the program may have no more. */
static const char *in_run(const struct board *b, const char *name,
                          char out[PATH_BYTES_MAX])
{
    size_t n = strlen(name);
    if (b->run_bytes + 1 + n >= PATH_BYTES_MAX)
        return "";
    memcpy(out, b->run, b->run_bytes);
    out[b->run_bytes] = '/';
    memcpy(out + b->run_bytes + 1, name, n + 1);
    return out;
}

/* map_segment - maps one file of the run directory; NULL unless it is a whole segment
 * of this layout that belongs to us. */
static void *map_segment(const struct board *b, const char *name, uint32_t kind,
                         bool writable)
{
    SCRATCH(path);
    int fd = path ? sys_openat(AT_FDCWD, in_run(b, name, path),
                               (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC)
                  : -1;
    if (fd < 0)
        return NULL;
    struct stat st;
    struct segment *seg = NULL;
    if (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == sys_geteuid() &&
        (st.st_mode & 0077) == 0 && (size_t)st.st_size >= sizeof(*seg)) {
        long at = sys_call(SYS_mmap, 0, st.st_size,
                           writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                           fd);
        if (at > 0 || at < -4095)
            seg = (struct segment *)at;
    }
    sys_close(fd);
    if (seg && (memcmp(seg->magic, "MONARCH", 8) != 0 || seg->kind != kind ||
                seg->version != LAYOUT_VERSION || seg->length != (size_t)st.st_size)) {
        sys_call(SYS_munmap, (long)seg, st.st_size, 0, 0, 0);
        seg = NULL;
    }
    return seg;
}

static void unmap(const void *segment)
{
    if (segment)
        sys_call(SYS_munmap, (long)segment,
                 (long)((const struct segment *)segment)->length, 0, 0, 0);
}

static void unmap_all(struct board *b)
{
    unmap(b->catalog);
    unmap(b->flags);
    unmap(b->requests);
    unmap(b->counters);
    unmap(b->inodes);
}

static bool roots_valid(const struct catalog *c)
{
    for (uint32_t i = 0; i < c->root_count; i++) {
        if (c->roots[i].block > c->seg.length - sizeof(struct index))
            return false;
        const struct index *ix = (const struct index *)((const char *)c +
                                                        c->roots[i].block);
        if (ix->seg.kind != SEGMENT_INDEX || ix->seg.version != LAYOUT_VERSION ||
            ix->seg.length > c->seg.length - c->roots[i].block)
            return false;
    }
    for (uint32_t i = 0; i < c->tier_count; i++)
        if (c->tiers[i].path_bytes >= TIER_PATH_MAX)
            return false;
    return true;
}

static bool generation_same(const struct board *b)
{
    uint64_t g = b->catalog->seg.generation;
    return b->flags->seg.generation == g && b->requests->seg.generation == g &&
           b->counters->seg.generation == g && b->inodes->seg.generation == g;
}

static bool catalog_valid(const struct board *b)
{
    const struct catalog *c = b->catalog;
    return c->seg.length >= sizeof(*c) && b->flags->seg.length >= sizeof(*b->flags) &&
           b->requests->seg.length >= sizeof(*b->requests) &&
           b->counters->seg.length >= sizeof(*b->counters) &&
           b->inodes->seg.length >= sizeof(*b->inodes) && c->root_count <= ROOTS_MAX &&
           c->tier_count <= TIERS_MAX && c->filter_count <= FILTER_NAMES_MAX &&
           c->prefix_count <= PREFIXES_MAX && c->prefixes < c->seg.length &&
           c->states < c->seg.length && c->strings <= c->seg.length &&
           b->flags->count <= b->flags->seg.length - sizeof(*b->flags) &&
           c->file_count + c->dir_count <= b->flags->count && roots_valid(c);
}

/* board_order_spellings - reads the prefixes, longest first, so that the first match is
 * the one that counts. */
void board_order_spellings(struct board *b)
{
    const struct catalog *c = b->catalog;
    const struct prefix *from = (const struct prefix *)((const char *)c + c->prefixes);
    b->spelling_count = c->prefix_count;
    for (uint32_t i = 0; i < c->prefix_count; i++) {
        struct spelling s = {
            .path = (const char *)c + c->strings + (from[i].path >> 16),
            .bytes = (uint32_t)(from[i].path & 0xffff),
            .root = from[i].root,
        };
        uint32_t at = i;
        for (; at > 0 && b->spellings[at - 1].bytes < s.bytes; at--)
            b->spellings[at] = b->spellings[at - 1];
        b->spellings[at] = s;
    }
}

static bool map_all(struct board *b)
{
    SCRATCH(path);
    b->catalog = map_segment(b, "catalog", SEGMENT_CATALOG, false);
    b->flags = map_segment(b, "flags", SEGMENT_FLAGS, true);
    b->requests = map_segment(b, "requests", SEGMENT_REQUESTS, true);
    b->counters = map_segment(b, "counters", SEGMENT_COUNTERS, true);
    b->inodes = map_segment(b, "inodes", SEGMENT_INODES, false);
    if (path && b->catalog && b->flags && b->requests && b->counters && b->inodes &&
        generation_same(b) && catalog_valid(b)) {
        board_order_spellings(b);
        struct stat st;
        b->injects = sys_stat(AT_FDCWD, in_run(b, "shim.so", path), &st, 0) == 0;
        return true;
    }
    unmap_all(b);
    return false;
}

/* filtered - the configuration leaves programs of this name alone. */
static bool filtered(const struct catalog *c)
{
    const char *name = process_exe();
    const char *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    for (uint32_t i = 0; i < c->filter_count; i++)
        if (strncmp(name, c->filter[i], FILTER_NAME_BYTES) == 0)
            return true;
    return false;
}

/* leaves_room - the segments take a small part of the address space where that is
 * limited: the program must find room for all that it would find it for without us. */
static bool leaves_room(const struct board *b)
{
    SCRATCH(path);
    static const char *const names[] = {"catalog", "flags", "requests", "counters",
                                        "inodes"};
    struct rlimit limit;
    struct stat st;
    uint64_t bytes = 0;
    if (sys_call(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0) < 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return true;
    for (size_t i = 0; path && i < sizeof(names) / sizeof(names[0]); i++)
        if (sys_stat(AT_FDCWD, in_run(b, names[i], path), &st, AT_SYMLINK_NOFOLLOW) ==
            0)
            bytes += (uint64_t)st.st_size;
    return bytes <= limit.rlim_cur / ADDRESS_PART;
}

/* privileged - this process may read whatever the agent, which made the copies, may; or
 * else a Replica could give what the origin refuses. In another user namespace the group
 * of the run directory is the agent's. */
static bool privileged(struct board *b)
{
    const struct rights *agents = &b->requests->agent;
    struct rights mine;
    rights_read(&mine);
    rights_locate(&mine);
    b->elsewhere = !rights_placed(&mine, agents);
    bool same_ids = mine.user_ns && mine.user_ns == agents->user_ns;
    return rights_cover(&mine, agents) && (same_ids || mine.egid == b->run_gid);
}

/* run_is_ours - the run directory is ours alone. */
static bool run_is_ours(struct board *b)
{
    struct stat st;
    if (sys_stat(AT_FDCWD, b->run, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    b->run_gid = st.st_gid;
    return S_ISDIR(st.st_mode) && st.st_uid == sys_geteuid() &&
           (st.st_mode & 0077) == 0;
}

/* map_board - maps what is in the run directory, and tells where the process stands. What
 * lacks a descriptor or memory now may have it when something is changed. */
static enum phase map_board(struct board *b, bool serves)
{
    if (!map_all(b))
        return PHASE_NARROW;
    bool served = serves && privileged(b) && !filtered(b->catalog);
    if (!process_prepare(b->requests->agent.pid_ns, served))
        return PHASE_INERT;
    return served ? PHASE_OPEN : PHASE_LEFT;
}

/* open_run - finds the run directory, and tells the phase to begin with. */
static enum phase open_run(struct board *b)
{
    const char *off = getenv("MONARCH_STAGING_DISABLE");
    const char *run = getenv("MONARCH_STAGING_RUN");
    if ((off && strcmp(off, "1") == 0) || !run || run[0] != '/' || getauxval(AT_SECURE))
        return PHASE_INERT;
    b->run_bytes = strlen(run);
    if (b->run_bytes >= sizeof(b->run))
        return PHASE_INERT;
    memcpy(b->run, run, b->run_bytes + 1);
    if (!run_is_ours(b))
        return PHASE_INERT;
    return leaves_room(b) ? map_board(b, true) : PHASE_NARROW;
}

/* open_once - the first caller looks; before libc has an environment, nobody does. */
static enum phase open_once(void)
{
    uint32_t expected = PHASE_UNKNOWN;
    if (!environ ||
        !atomic_compare_exchange_strong(&the_phase, &expected, PHASE_OPENING))
        return PHASE_OPENING;
    enum phase found = open_run(&the_board);
    atomic_store_explicit(&the_phase, found, memory_order_release);
    return found;
}

/* phase_now - where this process stands, after a first look. */
static inline enum phase phase_now(void)
{
    enum phase phase = atomic_load_explicit(&the_phase, memory_order_acquire);
    return __builtin_expect(phase != PHASE_UNKNOWN, 1) ? phase : open_once();
}

/* widen - maps the segments after all, because something is about to be changed that
 * other processes must not read any more. */
static enum phase widen(void)
{
    uint32_t expected = PHASE_NARROW;
    if (!atomic_compare_exchange_strong(&the_phase, &expected, PHASE_OPENING))
        return expected;
    enum phase found = run_is_ours(&the_board) ? map_board(&the_board, false)
                                               : PHASE_NARROW;
    atomic_store_explicit(&the_phase, found, memory_order_release);
    return found;
}

/* settle - gives the process its slot. A child may have been made with other rights than
 * its parent has, by clone() in a user namespace of its own. */
static void settle(enum phase phase)
{
    bool began = process_enter(the_board.counters);
    if (__builtin_expect(began, 0) && phase == PHASE_OPEN && !privileged(&the_board))
        board_leave();
}

/* board_enter - what every wrapper that serves or answers asks first: the board, or NULL
 * to pass through. The process has its slot in the counters when this returns. */
const struct board *board_enter(void)
{
    if (__builtin_expect(phase_now() != PHASE_OPEN, 0))
        return NULL;
    settle(PHASE_OPEN);
    return __builtin_expect(phase_now() == PHASE_OPEN, 1) ? &the_board : NULL;
}

/* board_marking - the same for wrappers that mark what changes: this goes on where
 * nothing is served any more, since other processes are. */
const struct board *board_marking(void)
{
    enum phase phase = phase_now();
    if (__builtin_expect(phase == PHASE_NARROW, 0))
        phase = widen();
    for (int n = 0; phase == PHASE_OPENING && n < TURNS_MAX; n++) {
        sys_call(SYS_sched_yield, 0, 0, 0, 0, 0);
        phase = phase_now();
    }
    if (phase != PHASE_OPEN && phase != PHASE_LEFT)
        return NULL;
    settle(phase);
    return &the_board;
}

/* board_leave - serves nothing from now on, for good; a child that borrows its parent's
 * memory must not decide that for the parent. */
void board_leave(void)
{
    uint32_t expected = PHASE_OPEN;
    if (!process_borrowed())
        atomic_compare_exchange_strong(&the_phase, &expected, PHASE_LEFT);
}

/* board_left - the board of this process, whether files are served from it or not; NULL:
 * it has none. */
const struct board *board_left(void)
{
    uint32_t phase = atomic_load_explicit(&the_phase, memory_order_acquire);
    return phase == PHASE_OPEN || phase == PHASE_LEFT ? &the_board : NULL;
}

__attribute__((constructor)) static void begin(void)
{
    enum phase phase = phase_now();
    if (phase == PHASE_OPEN || phase == PHASE_LEFT)
        settle(phase);
    if (phase != PHASE_INERT)
        trace_inherited();
}
