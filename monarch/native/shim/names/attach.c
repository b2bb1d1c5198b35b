/* attach.c - finds the segments of the job at the first use, and those of its next agent when the
 * first has ended. */
#include "shim/names/attached.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shim/base/process.h"
#include "shim/base/scratch.h"
#include "shim/names/segments.h"
#include "shared/rights.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"

enum phase {
    PHASE_UNKNOWN = 0, /* not searched yet */
    PHASE_OPENING,     /* one thread is looking; the others pass through */
    PHASE_OPEN,        /* files are served, and changes are marked */
    PHASE_EARLY,       /* no Catalog yet; changes are stored for its marks */
    PHASE_LEFT,        /* changes are marked, for other processes; nothing is served */
    PHASE_NARROW,      /* the same, but the segments are mapped at the first change */
    PHASE_INERT,
};

enum { ADDRESS_PART = 8, TURNS_MAX = 10000, TRIES_MAX = 64 };

static struct segments the_segments;
static struct segments the_outline; /* until the Catalog of the first agent exists */
static struct segments *_Atomic the_last; /* whose marks are read; NULL: none yet */
static _Atomic uint32_t the_phase;
static _Atomic bool the_rights_changed; /* files are never served again */

/* filtered - the configuration excludes programs of this name. */
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

/* leaves_room - the address space is unlimited, or the segments take a small part of it: the
 * program must have room for all that it could map without us. */
static bool leaves_room(const struct segments *seg)
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
        if (sys_stat(AT_FDCWD, segments_path(seg, names[i], path), &st,
                     AT_SYMLINK_NOFOLLOW) == 0)
            bytes += (uint64_t)st.st_size;
    return bytes <= limit.rlim_cur / ADDRESS_PART;
}

/* privileged - this process may read all files that the agent, which made the copies, may:
 * otherwise a Replica could serve a file that the origin refuses. In another user namespace the
 * group of the run directory is the agent's. */
static bool privileged(struct segments *seg)
{
    const struct rights *agents = &seg->requests->agent;
    struct rights mine;
    rights_read(&mine);
    rights_locate(&mine);
    seg->elsewhere = !rights_placed(&mine, agents);
    bool same_ids = mine.user_ns && mine.user_ns == agents->user_ns;
    return rights_cover(&mine, agents) && (same_ids || mine.egid == seg->run_gid);
}

/* run_is_ours - the run directory is ours alone. */
static bool run_is_ours(struct segments *seg)
{
    struct stat st;
    if (sys_stat(AT_FDCWD, seg->run, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    seg->run_gid = st.st_gid;
    return S_ISDIR(st.st_mode) && st.st_uid == sys_geteuid() &&
           (st.st_mode & 0077) == 0;
}

/* take_on - adopts these segments for this process, and returns its phase: `serving` if it may be
 * served. */
static enum phase take_on(struct segments *seg, bool serves, enum phase serving)
{
    bool served = serves && privileged(seg) && !filtered(seg->catalog);
    if (!process_prepare(seg->requests->agent.pid_ns, served))
        return PHASE_INERT;
    atomic_store_explicit(&the_last, seg, memory_order_release);
    return served ? serving : PHASE_LEFT;
}

/* map_outline - maps the segments that replace the Catalog until it exists. */
static bool map_outline(struct segments *seg, const struct segments *from)
{
    memcpy(seg->run, from->run, from->run_bytes + 1);
    seg->run_bytes = from->run_bytes;
    seg->run_gid = from->run_gid;
    return segments_map_outline(seg);
}

/* map_segments - maps the segments of the run directory, and returns the phase of the process. A
 * missing descriptor or missing memory may be available at the first change. */
static enum phase map_segments(struct segments *seg, bool serves)
{
    if (segments_map(seg)) {
        if (segments_catalog(seg) == CATALOG_SERVED)
            return take_on(seg, serves, PHASE_OPEN);
        segments_unmap(seg);
    }
    if (map_outline(&the_outline, seg))
        return take_on(&the_outline, serves, PHASE_EARLY);
    return PHASE_NARROW;
}

/* open_run - finds the run directory, and returns the first phase. */
static enum phase open_run(struct segments *seg)
{
    const char *off = getenv("MONARCH_STAGING_DISABLE");
    const char *run = getenv("MONARCH_STAGING_RUN");
    if ((off && strcmp(off, "1") == 0) || !run || run[0] != '/' || getauxval(AT_SECURE))
        return PHASE_INERT;
    seg->run_bytes = strlen(run);
    if (seg->run_bytes >= sizeof(seg->run))
        return PHASE_INERT;
    memcpy(seg->run, run, seg->run_bytes + 1);
    if (!run_is_ours(seg))
        return PHASE_INERT;
    return leaves_room(seg) ? map_segments(seg, true) : PHASE_NARROW;
}

/* open_once - opens the run at the first call, but not before libc has an environment. */
static enum phase open_once(void)
{
    uint32_t expected = PHASE_UNKNOWN;
    if (!environ ||
        !atomic_compare_exchange_strong(&the_phase, &expected, PHASE_OPENING))
        return PHASE_OPENING;
    enum phase found = open_run(&the_segments);
    atomic_store_explicit(&the_phase, found, memory_order_release);
    return found;
}

/* phase_now - returns the phase of this process, after a first look. */
static inline enum phase phase_now(void)
{
    enum phase phase = atomic_load_explicit(&the_phase, memory_order_acquire);
    return __builtin_expect(phase != PHASE_UNKNOWN, 1) ? phase : open_once();
}

/* invalidate_earlier - marks the files that were opened or mapped before this agent existed. */
static void invalidate_earlier(const struct segments *seg)
{
    invalidate_inherited(seg);
    invalidate_mapped(seg);
}

/* widen - maps the segments after all, because a file is about to be changed that other processes
 * must not read any more. */
static enum phase widen(void)
{
    uint32_t expected = PHASE_NARROW;
    if (!atomic_compare_exchange_strong(&the_phase, &expected, PHASE_OPENING))
        return expected;
    enum phase found = run_is_ours(&the_segments) ? map_segments(&the_segments, false)
                                                  : PHASE_NARROW;
    atomic_store_explicit(&the_phase, found, memory_order_release);
    if (found == PHASE_LEFT)
        invalidate_earlier(atomic_load(&the_last));
    return found;
}

/* late_phase - maps the Catalog, and returns the phase of the process. A missing descriptor may be
 * available at a later call. */
static enum phase late_phase(struct segments *seg)
{
    static _Atomic uint32_t tries;
    if (!leaves_room(seg) || atomic_fetch_add(&tries, 1) == TRIES_MAX)
        return PHASE_LEFT;
    if (!run_is_ours(seg) || !segments_map(seg))
        return PHASE_EARLY;
    enum phase found = privileged(seg) ? PHASE_OPEN : PHASE_LEFT;
    atomic_store_explicit(&the_last, seg, memory_order_release);
    return found;
}

/* attach_late - attaches to the Catalog that has been published since this process began. Threads
 * that change files meanwhile continue with the outline. Files that the process has open for
 * writing are marked again: not all were opened by observed calls. */
static enum phase attach_late(void)
{
    uint32_t expected = PHASE_EARLY;
    if (process_borrowed()) /* its parent attaches itself, by its own rights */
        return PHASE_EARLY;
    if (!atomic_compare_exchange_strong(&the_phase, &expected, PHASE_OPENING))
        return expected;
    enum phase found = late_phase(&the_segments);
    atomic_store_explicit(&the_phase, found, memory_order_release);
    if (atomic_load(&the_rights_changed)) /* by a thread that has not seen this phase */
        detach();
    if (found != PHASE_EARLY && atomic_load(&the_last) == &the_segments)
        invalidate_earlier(&the_segments);
    return phase_now();
}

/* phase_early - does the same as phase_now(), if that is not PHASE_OPEN: one read of a word shows
 * whether the Catalog exists by now. */
static enum phase phase_early(enum phase phase)
{
    return phase == PHASE_EARLY && segments_catalog(&the_outline) == CATALOG_SERVED
               ? attach_late()
               : phase;
}

/* settle - assigns the process its slot. A child may have been created with other rights than its
 * parent, by clone() in a user namespace of its own. */
static void settle(const struct segments *seg, enum phase phase)
{
    bool began = process_enter(seg->counters);
    if (__builtin_expect(!began, 1))
        return;
    if ((phase == PHASE_OPEN && !privileged(&the_segments)) ||
        (phase == PHASE_EARLY && !privileged(&the_outline)))
        detach();
}

/* attach_for_serving - returns the segments for a wrapper that serves or answers, or NULL to pass
 * through: each calls it first. The process has its slot in the counters when this returns. */
const struct segments *attach_for_serving(void)
{
    enum phase phase = phase_now();
    if (__builtin_expect(phase != PHASE_OPEN, 0) && phase_early(phase) != PHASE_OPEN)
        return NULL;
    if (__builtin_expect(segments_superseded(&the_segments), 0))
        return NULL;
    settle(&the_segments, PHASE_OPEN);
    return __builtin_expect(phase_now() == PHASE_OPEN, 1) ? &the_segments : NULL;
}

/* forget - unmaps segments that no other thread has seen. */
static void forget(struct segments *seg)
{
    if (seg->catalog)
        segments_unmap(seg);
    sys_call(SYS_munmap, (long)seg, sizeof(*seg), 0, 0, 0);
}

/* find_next - maps the segments of the next agent, in memory of their own: other threads may be
 * using the earlier ones. NULL: no next agent, or not yet. */
static struct segments *find_next(struct segments *last)
{
    struct stat st;
    if (sys_stat(AT_FDCWD, last->run, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return NULL; /* as a rule the job has ended */
    long at = sys_call(SYS_mmap, 0, sizeof(*last), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at < 0 && at >= -4095)
        return NULL;
    struct segments *next = (struct segments *)at;
    memcpy(next->run, last->run, last->run_bytes + 1);
    next->run_bytes = last->run_bytes;
    next->before = last->changes ? last->before : last;
    if (run_is_ours(next) &&
        (segments_map(next) || (segments_superseded(last) && map_outline(next, last))))
        return next;
    next->catalog = NULL;
    forget(next);
    return NULL;
}

/* outlived - marks in these segments are not read any more, or the Catalog has them by now. */
static bool outlived(const struct segments *seg)
{
    return __builtin_expect(segments_superseded(seg), 0) ||
           (seg->changes && segments_catalog(seg) != CATALOG_NONE);
}

/* succeed - switches to the segments whose marks are read, because the agent of the last ones has
 * ended, or has a Catalog. Files open for writing are marked at once: they may have been opened
 * before. */
static const struct segments *succeed(struct segments *last)
{
    struct segments *next = find_next(last);
    if (!next)
        return last; /* it still knows the Replicas that are open */
    if (!atomic_compare_exchange_strong(&the_last, &last, next)) {
        forget(next);
        return last;
    }
    if (!process_borrowed())
        process_begin(next->counters);
    invalidate_earlier(next);
    return next;
}

/* attach_for_marking - does the same for wrappers that mark changes: this continues when this
 * process is not served any more, because other processes are. */
const struct segments *attach_for_marking(void)
{
    enum phase phase = phase_now();
    if (__builtin_expect(phase != PHASE_OPEN, 0))
        phase = phase == PHASE_NARROW ? widen() : phase_early(phase);
    struct segments *seg = atomic_load_explicit(&the_last, memory_order_acquire);
    for (int n = 0; phase == PHASE_OPENING && !seg && n < TURNS_MAX; n++) {
        sys_call(SYS_sched_yield, 0, 0, 0, 0, 0);
        phase = phase_now();
        seg = atomic_load_explicit(&the_last, memory_order_acquire);
    }
    if (!seg)
        return NULL;
    settle(seg, phase);
    return __builtin_expect(outlived(seg), 0) ? succeed(seg) : seg;
}

/* detach - ends serving for good; a child that borrows its parent's memory must not decide that for
 * the parent. */
void detach(void)
{
    uint32_t expected = PHASE_OPEN;
    if (process_borrowed())
        return;
    atomic_store(&the_rights_changed, true);
    if (!atomic_compare_exchange_strong(&the_phase, &expected, PHASE_LEFT) &&
        expected == PHASE_EARLY)
        atomic_compare_exchange_strong(&the_phase, &expected, PHASE_LEFT);
}

/* attached_segments - returns the segments of this process, whether files are served from them or
 * not; NULL: it has none. */
const struct segments *attached_segments(void)
{
    return atomic_load_explicit(&the_last, memory_order_acquire);
}

__attribute__((constructor)) static void begin(void)
{
    enum phase phase = phase_now();
    if (phase == PHASE_OPEN || phase == PHASE_LEFT || phase == PHASE_EARLY) {
        settle(atomic_load(&the_last), phase);
        invalidate_inherited(attach_for_marking());
    } else if (phase == PHASE_NARROW && invalidate_inherited(NULL)) {
        widen();
    }
}
