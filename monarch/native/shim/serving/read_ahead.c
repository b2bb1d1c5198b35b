/* read_ahead.c - requests Pages of a large File before they are read, by the pattern of the
 * descriptor's reads: sequential, in equal steps, or random.
 *
 * The pattern is kept by descriptor number and may be wrong after a close: that costs the origin
 * Pages that are read later, or never.
 */
#include "shim/serving/large_reads.h"
#include "shim/names/wait.h"

enum {
    STREAK_MIN = 2, /* reads in a row before anything is requested */
    STREAK_MAX = 16,
    WINDOW_MIN = 1 << 20,
    STEPS_AHEAD = 2, /* of reads in equal steps */
};

static const uint64_t WINDOW_MAX = 2ull * EXTENT_BYTES;

static struct pattern { /* of one descriptor */
    uint64_t file;      /* File number + 1 */
    uint64_t at, end;   /* of the last read */
    int64_t step;       /* from the start of the last read but one to that */
    uint64_t asked;     /* up to here */
    uint32_t streak;
} patterns[DESCRIPTORS_MAX];

static void ask(const struct large *l, uint64_t from, uint64_t to)
{
    uint32_t at = (uint32_t)(from / PAGE_BYTES), end = pages_of(to);
    for (; at < end; at += REQUEST_COUNT_MAX) {
        struct page_range range = {l->large, at, end - at};
        if (!wait_put(l->seg, presence_request(range)))
            break;
    }
}

/* window - returns how far to read ahead: more with each read in a row. */
static uint64_t window(uint32_t streak)
{
    uint32_t doubled = streak < STREAK_MAX ? streak - STREAK_MIN : STREAK_MAX;
    uint64_t bytes = (uint64_t)WINDOW_MIN << doubled;
    return bytes < WINDOW_MAX ? bytes : WINDOW_MAX;
}

/* follow - requests the bytes after a sequence, half a window at a time. */
static void follow(struct pattern *p, const struct large *l)
{
    uint64_t wide = window(p->streak), to = p->end + wide;
    to = to < l->size ? to : l->size;
    p->asked = p->asked > p->end ? p->asked : p->end;
    if (to <= p->asked || (to < l->size && to - p->asked < wide / 2))
        return;
    ask(l, p->asked, to);
    p->asked = to;
}

/* stride - requests the next reads in equal steps. */
static void stride(const struct pattern *p, const struct large *l)
{
    uint64_t n = p->end - p->at;
    for (int64_t i = 1; i <= STEPS_AHEAD; i++) {
        int64_t at = (int64_t)p->at + i * p->step;
        if (at >= 0 && (uint64_t)at + n <= l->size)
            ask(l, (uint64_t)at, (uint64_t)at + n);
    }
}

/* read_ahead_is_random - a read at this offset continues no sequence and no equal steps, of which
 * more is requested at once. */
bool read_ahead_is_random(int fd, const struct large *l, uint64_t at)
{
    const struct pattern *p = &patterns[fd];
    bool follows = p->file == l->file + 1 ? at == p->end : at == 0;
    return !follows && !(p->step && (int64_t)(at - p->at) == p->step);
}

/* read_ahead - requests further Pages after a read of n bytes. */
void read_ahead(int fd, const struct large *l, uint64_t at, uint64_t n)
{
    struct pattern *p = &patterns[fd];
    uint32_t word = replica_load(l->seg->catalog, l->file);
    if (STATE_OF(word) == REPLICA_READY || STATE_REASON(word) != REASON_NONE)
        return;
    if (p->file != l->file + 1)
        *p = (struct pattern){.file = l->file + 1, .at = at, .end = at};
    int64_t step = (int64_t)(at - p->at);
    bool follows = at == p->end, steps = !follows && step && step == p->step;
    p->streak = follows || steps ? p->streak + 1 : 0;
    if (!follows)
        p->asked = 0;
    p->step = step;
    p->at = at;
    p->end = at + n;
    if (p->streak < STREAK_MIN)
        return;
    if (follows)
        follow(p, l);
    else
        stride(p, l);
}
