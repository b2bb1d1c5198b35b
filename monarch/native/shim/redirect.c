/* redirect.c - decides what an open gets: a ready Replica, one worth waiting for, or the
 * origin; and counts which. */
#include "redirect.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "identity.h"
#include "mark.h"
#include "object.h"
#include "process.h"
#include "sys.h"
#include "invalidate.h"
#include "wait.h"

#if defined(__x86_64__)
enum { LARGEFILE = 0100000 }; /* what 32-bit habits pass; 0 in the headers */
#else
enum { LARGEFILE = O_LARGEFILE };
#endif

enum {
    SAMPLED_FIRST = 64,
    SAMPLED_EVERY = 1024
}; /* outside opens that are looked at */

/* What a read-only open may ask for and still be served. */
static const int SERVABLE = O_CLOEXEC | O_NOATIME | O_NOCTTY | O_NONBLOCK | O_DIRECT |
                            O_SYNC | O_NOFOLLOW | LARGEFILE;

static bool origin(const struct redirect *s, int why)
{
    count(COUNTER_opens_origin, 1);
    count(COUNTER_bytes_origin, s->size);
    if (why >= 0)
        count((enum counter)why, 1);
    return false;
}

/* name_replica - writes the path of the File's Replica in the Tier of its state word. */
static bool name_replica(struct redirect *s, const struct route *r,
                         const struct entry *e, uint32_t word)
{
    s->tier = STATE_TIER(word);
    s->source = STATE_SOURCE(word);
    if (s->tier >= s->seg->catalog->tier_count)
        return false;
    const struct tier *tier = &s->seg->catalog->tiers[s->tier];
    const struct entry *first = index_first(r->ix, e->file);
    uint64_t hash = r->hash;
    if (first != route_entry(r)) /* a link, or another name of the same File */
        hash = index_hash(index_path(r->ix, first), index_path_bytes(first));
    memcpy(s->staged, tier->path, tier->path_bytes);
    s->staged[tier->path_bytes] = '/';
    replica_name(first, s->seg->catalog->roots[r->root].path_hash, hash,
                 s->staged + tier->path_bytes + 1);
    s->staged[tier->path_bytes + 1 + REPLICA_NAME_BYTES] = 0;
    s->path = s->staged;
    s->final = false;
    return true;
}

static bool waits(const struct catalog *c, uint64_t size)
{
    return c->cold_mode == COLD_WAIT ||
           (c->cold_mode == COLD_AUTO && size <= c->cold_wait_max_bytes);
}

/* await - asks for a cold File and, if it is small, waits for it: its state word when it
 * got ready, else 0 with the reason counted. */
static uint32_t await(struct redirect *s, uint32_t word)
{
    if (STATE_OF(word) == REPLICA_EVICTING || STATE_REASON(word) != REASON_NONE)
        return origin(s, (int)wait_refusal(word));
    if (!waits(s->seg->catalog, s->size)) {
        if (wait_agent_lives(s->seg) && STATE_OF(word) == REPLICA_ABSENT)
            wait_request(s->seg, s->file);
        return origin(s, COUNTER_origin_large);
    }
    if (process_borrowed())
        return origin(s, COUNTER_origin_vfork);
    enum counter why = COUNTER_origin_timeout;
    word = wait_ready(s->seg, s->file, &why);
    s->waited = true;
    return word ? word : origin(s, (int)why);
}

/* redirect_entry - decides for a managed regular File; `written` is read after READY was
 * seen, so that a mark set before a write is never missed. */
bool redirect_entry(struct redirect *s, const struct route *r, const struct entry *e)
{
    uint64_t file = (uint64_t)s->seg->catalog->roots[r->root].file_base + e->file;
    s->file = file;
    s->size = e->size;
    s->waited = false;
    if (file >= s->seg->catalog->file_count)
        return false;
    __builtin_prefetch(&s->seg->flags->written[file]);
    uint32_t word = replica_load(s->seg->catalog, file);
    if (mark_seen(s->seg, r->root, r->ix, e))
        return origin(s, COUNTER_origin_written);
    if (STATE_OF(word) != REPLICA_READY) {
        word = await(s, word);
        if (!word)
            return false;
        if (mark_seen(s->seg, r->root, r->ix, e))
            return origin(s, COUNTER_origin_written);
    }
    return name_replica(s, r, e, word) || origin(s, COUNTER_origin_lost);
}

/* redirect_read - a read-only open: only a catalogued regular file can have a Replica. */
static bool redirect_read(struct redirect *s, int dirfd, const char *path, int flags)
{
    ROUTE(r);
    enum where where = route_at(s->seg, dirfd, path, &r);
    if (__builtin_expect(where != ROUTE_FOUND, 1)) {
        uint64_t before = counted(COUNTER_opens_outside);
        s->doubted = mark_any(s->seg);
        s->sampled = before < SAMPLED_FIRST || before % SAMPLED_EVERY == 0;
        count(COUNTER_opens_outside, 1);
        return false;
    }
    const struct entry *e = route_entry(&r);
    uint32_t mode = index_attr(r.ix, e)->mode;
    if (S_ISLNK(mode)) {
        if ((flags & O_NOFOLLOW) || e->target == NONE32)
            return false;
        e = index_entry(r.ix, e->target);
        mode = index_attr(r.ix, e)->mode;
    }
    if (!S_ISREG(mode) || r.directory_only || e->file == NONE32)
        return false;
    if (s->seg->catalog->roots[r.root].unstable && index_attr(r.ix, e)->nlink > 1)
        return false; /* an overlay parts the names of a file that is changed */
    if ((flags & O_NOATIME) && index_attr(r.ix, e)->uid != sys_geteuid())
        return false; /* for owners only, as the origin will say */
    return redirect_entry(s, &r, e);
}

/* may_change - these flags of an open let the program change something. */
static bool may_change(int flags)
{
    return (flags & (O_ACCMODE | O_TRUNC | O_CREAT)) && !(flags & O_PATH);
}

/* redirect_open - true: open s->path first, then ask redirect_opened(); false: open what the
 * program named, with the flags s->named. */
bool redirect_open(struct redirect *s, int dirfd, const char *path, int flags)
{
    bool changes = may_change(flags);
    redirect_begin(s, flags);
    s->seg = changes ? attach_for_marking() : attach_for_serving();
    if (__builtin_expect(!s->seg || !path, 0)) {
        s->seg = attached_segments();
        s->doubted = s->seg && path && mark_any(s->seg);
        return false;
    }
    if (changes)
        return redirect_write(s, dirfd, path, true);
    if (flags & ~SERVABLE) {
        s->doubted = mark_any(s->seg) && !(flags & (O_PATH | O_DIRECTORY));
        return false;
    }
    return redirect_read(s, dirfd, path, flags);
}

/* redirect_whole - the same for calls whose flags cannot be changed. */
bool redirect_whole(struct redirect *s, int dirfd, const char *path, int flags)
{
    if (!may_change(flags))
        return redirect_open(s, dirfd, path, flags);
    redirect_begin(s, flags);
    s->seg = attach_for_marking();
    return s->seg && path && redirect_write(s, dirfd, path, false);
}

/* redirect_stream - the same for the mode of fopen(). */
bool redirect_stream(struct redirect *s, const char *path, const char *mode)
{
    return redirect_whole(s, AT_FDCWD, path, redirect_stream_flags(mode));
}

/* redirect_eases - a Tier may know no O_DIRECT (tmpfs before Linux 6.6): its pages are in
 * memory anyway, so try without. */
bool redirect_eases(struct redirect *s)
{
    if (s->final || errno != EINVAL || !(s->flags & O_DIRECT))
        return false;
    s->flags &= ~O_DIRECT;
    return true;
}

/* count_served - a hit is what was ready at the first look; what was waited for came
 * from a peer that had it ready, or the origin had to be read for it. */
static void count_served(const struct redirect *s)
{
    bool peer = s->source == SOURCE_PEER;
    if (!s->waited) {
        count((enum counter)(COUNTER_opens_hit_tier0 + s->tier), 1);
        count((enum counter)(COUNTER_bytes_hit_tier0 + s->tier), s->size);
        return;
    }
    count(peer ? COUNTER_opens_peer_hit : COUNTER_opens_miss, 1);
    count(peer ? COUNTER_bytes_peer_hit : COUNTER_bytes_miss, s->size);
}

/* tier_failed - an open of a Replica has failed for what may be the Tier's fault. */
static bool tier_failed(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ESTALE || error == EIO ||
           error == ENXIO || error == ENODEV || error == ENOTCONN || error == EUCLEAN;
}

/* redirect_opened - counts how the open of s->path went; false: now open what the program
 * named, the Replica is gone or may not be opened. */
bool redirect_opened(struct redirect *s, bool opened)
{
    if (s->held >= 0)
        sys_close(s->held);
    if (s->final && s->held < 0)
        errno = identity_error(s->held);
    if (s->final)
        return true;
    if (__builtin_expect(opened, 1)) {
        count_served(s);
        return true;
    }
    if (tier_failed(errno))
        wait_request(s->seg, s->file); /* the agent looks whether it is still there */
    errno = s->kept_errno;
    return origin(s, COUNTER_origin_lost);
}
