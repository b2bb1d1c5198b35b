/* wait.c - request slots and the wait on a File's state word; holds nothing meanwhile. */
#include "shim/names/wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <time.h>

#include "shim/base/process.h"
#include "shared/progress.h"
#include "shim/base/sys.h"

enum {
    SLICE_NS = 100 * 1000 * 1000,
    SILENT_NS = 1000 * 1000 * 1000, /* the agent writes ten heartbeats in this time */
    PROBES_MAX = 64,
    LATE_MAX = 256, /* Files for which this process has waited too long, by number */
};

static _Atomic uint32_t late[LATE_MAX];

/* now_ns - returns the kernel's time, as in the agent's heartbeat: a library may show the program
 * another one. */
static uint64_t now_ns(void)
{
    struct timespec t = {0};
    sys_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0, 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool beats(const struct segments *seg, uint64_t now)
{
    uint64_t beat = atomic_load_explicit(
        (_Atomic uint64_t *)&seg->requests->heartbeat_ns, memory_order_relaxed);
    uint32_t state = atomic_load_explicit(
        (_Atomic uint32_t *)&seg->requests->agent_state, memory_order_relaxed);
    return state == AGENT_READY && beat + SILENT_NS > now;
}

/* wait_agent_lives - the agent is ready, and its last heartbeat is recent. */
bool wait_agent_lives(const struct segments *seg)
{
    return beats(seg, now_ns());
}

/* wake - wakes a thread of the agent that sleeps on a word; false: none does. */
static bool wake(_Atomic uint32_t *word)
{
    return sys_call(SYS_futex, (long)word, FUTEX_WAKE, 1, 0, 0) > 0;
}

/* ring - wakes the listening thread. */
static void ring(const struct segments *seg)
{
    _Atomic uint32_t *bell = (_Atomic uint32_t *)&seg->requests->bell;
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    wake(bell);
}

/* call - wakes an idle thread, which reads the slots and can copy at once. A thread that was called
 * before and has not read them yet will find this slot too. */
static void call(const struct segments *seg)
{
    _Atomic uint32_t *called = (_Atomic uint32_t *)&seg->requests->called;
    if (!atomic_exchange_explicit(called, 1, memory_order_acq_rel) && !wake(called))
        ring(seg);
}

static _Atomic uint32_t *waiters(const struct segments *seg, uint64_t file)
{
    return (_Atomic uint32_t *)&seg->requests->waiters[file % WAITER_COUNTS];
}

/* wait_enter - counts an open that may wait for the File: a Replica in the Pool stays until
 * wait_leave(). */
void wait_enter(const struct segments *seg, uint64_t file)
{
    atomic_fetch_add_explicit(waiters(seg, file), 1, memory_order_seq_cst);
}

/* wait_leave - ends the count. The agent may have stored 0 meanwhile, because of a killed process.
 * Files that wait for room in the Pool may have it now. */
void wait_leave(const struct segments *seg, uint64_t file)
{
    _Atomic uint32_t *count = waiters(seg, file);
    uint32_t seen = atomic_load_explicit(count, memory_order_relaxed);
    while (seen && !atomic_compare_exchange_weak_explicit(count, &seen, seen - 1,
                                                          memory_order_release,
                                                          memory_order_relaxed))
        ;
    if (atomic_load_explicit((_Atomic uint32_t *)&seg->requests->pool_full,
                             memory_order_relaxed))
        ring(seg);
}

/* wait_is_alone - no other node sends Pages: the origin may be read instead of waiting. */
bool wait_is_alone(const struct segments *seg)
{
    return atomic_load_explicit((_Atomic uint32_t *)&seg->requests->alone,
                                memory_order_relaxed);
}

/* wait_post - puts a request into a slot, unless it is in one; false: no slot free. The agent reads
 * it at once if it is called, else soon. */
bool wait_post(const struct segments *seg, uint64_t request, bool calls)
{
    uint32_t at = (uint32_t)(request * 0x9e3779b97f4a7c15u >> 40) % REQUEST_SLOTS;
    for (uint32_t n = 0; n < PROBES_MAX; n++) {
        _Atomic uint64_t *slot = (_Atomic uint64_t *)&seg->requests->slots[at];
        uint64_t held = atomic_load_explicit(slot, memory_order_relaxed);
        if (held == request) {
            if (calls) /* wait_post() may have put it without a call */
                call(seg);
            return true;
        }
        if (held == 0 && atomic_compare_exchange_strong(slot, &held, request)) {
            if (calls)
                call(seg);
            return true;
        }
        at = (at + 1) % REQUEST_SLOTS;
    }
    return false;
}

/* wait_put - puts the request of a waiting program into a slot. */
bool wait_put(const struct segments *seg, uint64_t request)
{
    return wait_post(seg, request, true);
}

/* wait_request - requests a File. */
bool wait_request(const struct segments *seg, uint64_t file)
{
    return wait_put(seg, file + 1);
}

/* slice - sleeps until the word changes, at most for a slice; then lets a pending
 * cancellation act, as it would in a slow open() or read(). */
static void slice(_Atomic uint32_t *word, uint32_t seen, uint64_t left_ns)
{
    struct timespec t = {.tv_nsec = left_ns < SLICE_NS ? (long)left_ns : SLICE_NS};
    int kept = errno;
    sys_call(SYS_futex, (long)word, FUTEX_WAIT, (long)seen, (long)&t, 0);
    poll(NULL, 0, 0);
    errno = kept; /* a signal may have interrupted the poll */
}

static void record(const struct segments *seg, enum wait_source source, uint64_t ns)
{
    uint32_t bucket = source * WAIT_BUCKETS + wait_bucket(ns);
    atomic_fetch_add_explicit((_Atomic uint64_t *)&seg->counters->wait_buckets[bucket],
                              1, memory_order_relaxed);
    atomic_fetch_add_explicit((_Atomic uint64_t *)&seg->counters->wait_total_ns[source],
                              ns, memory_order_relaxed);
}

static bool written(const struct segments *seg, uint64_t file)
{
    return atomic_load_explicit((_Atomic uint8_t *)&seg->flags->written[file],
                                memory_order_acquire);
}

/* wait_refusal - returns the counter of opens that do not wait because of this state. */
enum counter wait_refusal(uint32_t word)
{
    if (STATE_REASON(word) == REASON_NO_ROOM)
        return COUNTER_origin_full;
    if (STATE_REASON(word) == REASON_DENIED)
        return COUNTER_origin_denied;
    if (STATE_REASON(word) == REASON_CHANGED)
        return COUNTER_origin_written;
    return STATE_REASON(word) == REASON_BUSY ? COUNTER_origin_busy
                                             : COUNTER_origin_refused;
}

/* is_partial - the File is staged in part, perhaps for programs that read little of it. */
static bool is_partial(const struct segments *seg, uint64_t file, uint32_t word)
{
    int64_t large = presence_find(seg->flags, file);
    return large >= 0 && STATE_OF(word) == REPLICA_STAGING &&
           (uint32_t)part_load(presence_part(seg->flags, (uint32_t)large)) ==
               part_tag(word);
}

/* in_pieces - the File will not be whole on this node. A File for a packed Tier will be, if there
 * is room for it unpacked: the agent is asked. */
static bool in_pieces(const struct segments *seg, uint64_t file)
{
    int64_t large = presence_find(seg->flags, file);
    if (large < 0)
        return false;
    uint32_t pieces = part_pieces(presence_part(seg->flags, (uint32_t)large));
    return pieces && (!(pieces & PIECES_PACKED) || pieces & PIECES_STAY);
}

/* judge - true: keep waiting; false: the reason is set. Requests an absent or partial File
 * again. */
static bool judge(const struct segments *seg, uint64_t file, uint32_t word,
                  uint64_t now, enum counter *why)
{
    *why = wait_refusal(word);
    if (STATE_OF(word) == REPLICA_EVICTING || STATE_REASON(word) != REASON_NONE)
        return false;
    *why = COUNTER_origin_written;
    if (written(seg, file))
        return false;
    *why = COUNTER_origin_silent;
    if (!beats(seg, now))
        return false;
    *why = COUNTER_origin_large;
    if (STATE_OF(word) == REPLICA_STAGING && in_pieces(seg, file))
        return false;
    *why = COUNTER_origin_slots;
    bool asks = STATE_OF(word) == REPLICA_ABSENT || is_partial(seg, file, word);
    return !asks || wait_request(seg, file);
}

/* progresses - the Transfer of the File has progressed since `progress` was stored. */
static bool progresses(const struct segments *seg, uint64_t file, uint32_t *progress)
{
    uint32_t now = progress_load(seg->requests, file);
    bool moved = now && now != *progress;
    if (moved)
        *progress = now;
    return moved;
}

/* wait_ready - waits for a File's Replica; returns its state word, or 0 and why the origin must
 * answer. The time-out counts from the last progress of its Transfer. A File that was too late once
 * is not waited for again. */
uint32_t wait_ready(const struct segments *seg, uint64_t file, enum counter *why)
{
    _Atomic uint32_t *memory = &late[file % LATE_MAX];
    *why = COUNTER_origin_timeout;
    if (atomic_load_explicit(memory, memory_order_relaxed) == file + 1)
        return 0;
    uint64_t begun = now_ns(), passed = 0, moved = 0;
    uint32_t progress = progress_load(seg->requests, file);
    do {
        uint32_t word = replica_load(seg->catalog, file);
        if (STATE_OF(word) == REPLICA_READY) {
            record(seg, STATE_SOURCE(word) == SOURCE_PEER ? WAIT_PEER : WAIT_ORIGIN,
                   passed);
            return word;
        }
        if (!judge(seg, file, word, begun + passed, why))
            return 0;
        slice(replica_word(seg->catalog, file), word,
              seg->catalog->cold_timeout_ns - (passed - moved));
        passed = now_ns() - begun;
        if (progresses(seg, file, &progress))
            moved = passed;
    } while (passed - moved < seg->catalog->cold_timeout_ns);
    *why = COUNTER_origin_timeout;
    atomic_store_explicit(memory, (uint32_t)(file + 1), memory_order_relaxed);
    return 0;
}

/* ---- Pages of a File that fills ----------------------------------------------------- */

#define YOUNG_NS 20000000ull      /* of a wait */
#define YOUNG_SLICE_NS 2000000ull /* in which it asks again soon */

/* awaits - Pages of the File may arrive: it is absent, or staged in part. Between the two it is
 * staging for a moment, and none of its Pages are shown yet. */
static bool awaits(const struct segments *seg, uint64_t file, uint32_t large,
                   uint64_t begun, uint64_t now)
{
    uint32_t word = replica_load(seg->catalog, file);
    const struct part *part = presence_part(seg->flags, large);
    if (STATE_REASON(word) != REASON_NONE || written(seg, file) || !beats(seg, now))
        return false;
    if (STATE_OF(word) == REPLICA_STAGING)
        return (uint32_t)part_load(part) == part_tag(word) || now - begun < YOUNG_NS;
    return STATE_OF(word) == REPLICA_ABSENT;
}

static uint32_t failures(const struct segments *seg, uint32_t large)
{
    const struct part *part = presence_part(seg->flags, large);
    return atomic_load_explicit((const _Atomic uint32_t *)&part->failures,
                                memory_order_acquire);
}

static bool is_ready(const struct segments *seg, uint64_t file)
{
    return STATE_OF(replica_load(seg->catalog, file)) == REPLICA_READY;
}

/* present_in - returns the number of present Pages of an Extent. */
static uint32_t present_in(const _Atomic uint64_t *words, uint32_t extent)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < EXTENT_BLOCKS; i++)
        sum += (uint32_t)__builtin_popcountll(atomic_load_explicit(
            &words[extent * EXTENT_BLOCKS + i], memory_order_relaxed));
    return sum;
}

struct awaited { /* Pages of one Extent */
    struct page_range range;
    uint32_t failed; /* failures when they were first requested */
    bool requested;  /* just now */
};

/* wait_extent - waits for some Pages of one Extent; a File that became READY meanwhile shows no
 * Pages any more. */
static bool wait_extent(const struct segments *seg, uint64_t file, struct awaited *a)
{
    const struct page_range *range = &a->range;
    uint32_t extent = range->first / EXTENT_PAGES;
    const _Atomic uint64_t *words = presence_words(seg->flags, range->large);
    _Atomic uint32_t *changes = presence_changes(seg->flags, range->large) + extent;
    const _Atomic uint8_t *place = presence_places(seg->flags, range->large) + extent;
    uint64_t now = now_ns(), moved = now, begun = now;
    uint32_t before = 0, held = present_in(words, extent);
    for (;;) {
        uint32_t seen = atomic_load_explicit(changes, memory_order_acquire);
        if (pages_there(words, range->first, range->count) || is_ready(seg, file))
            return true;
        uint32_t holds = seen != before ? present_in(words, extent) : held;
        moved = holds != held ? now : moved;
        held = holds;
        before = seen;
        if (!awaits(seg, file, range->large, begun, now) ||
            atomic_load_explicit(place, memory_order_relaxed) == PLACE_ORIGIN ||
            failures(seg, range->large) != a->failed ||
            now - moved >= seg->catalog->cold_timeout_ns ||
            !(a->requested || wait_put(seg, presence_request(*range))))
            return is_ready(seg, file); /* perhaps since then */
        a->requested = false;
        slice(changes, seen, now - begun < YOUNG_NS ? YOUNG_SLICE_NS : SLICE_NS);
        now = now_ns();
    }
}

/* wait_pages - waits until Pages of a large File are present; false: the origin must answer,
 * because they will not be copied, or are too late. */
bool wait_pages(const struct segments *seg, uint64_t file, struct page_range range)
{
    _Atomic uint32_t *memory = &late[file % LATE_MAX];
    uint32_t end = range.first + range.count, failed = failures(seg, range.large);
    if (atomic_load_explicit(memory, memory_order_relaxed) == file + 1 ||
        !wait_put(seg, presence_request(range)))
        return false;
    uint64_t begun = now_ns();
    for (uint32_t at = range.first; at < end;) {
        uint32_t left = EXTENT_PAGES - at % EXTENT_PAGES;
        uint32_t n = end - at < left ? end - at : left;
        struct awaited part = {.range = {range.large, at, n}, .failed = failed};
        part.requested = at + n - range.first <= REQUEST_COUNT_MAX;
        if (!wait_extent(seg, file, &part)) {
            if (now_ns() - begun >= seg->catalog->cold_timeout_ns)
                atomic_store_explicit(memory, (uint32_t)(file + 1),
                                      memory_order_relaxed);
            return false;
        }
        at += n;
    }
    record(seg, WAIT_BLOCKS, now_ns() - begun);
    return true;
}
