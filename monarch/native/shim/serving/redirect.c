/* redirect.c - decides which file an open returns: a ready Replica, one worth waiting for, or the
 * origin's; and counts which. */
#include "shim/serving/redirects.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/names/identity.h"
#include "shim/serving/large_open.h"
#include "shim/names/mark.h"
#include "shim/base/object.h"
#include "shim/base/process.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"
#include "shared/recency.h"
#include "shim/names/wait.h"

#if defined(__x86_64__)
enum { LARGEFILE = 0100000 }; /* passed out of 32-bit habits; 0 in the headers */
#else
enum { LARGEFILE = O_LARGEFILE };
#endif

/* Outside opens that are sampled: all first ones, then fewer, because each costs 4 us. */
enum {
    SAMPLED_FIRST = 64,
    SAMPLED_EARLY = 1024,
    SAMPLED_EVERY = 32,
    SAMPLED_LATE = 1024
};

enum { MOVES_MAX = 8 }; /* Replicas that move before they are opened, per open */

/* Flags with which a read-only open can be served. */
static const int SERVABLE = O_CLOEXEC | O_NOATIME | O_NOCTTY | O_NONBLOCK | O_DIRECT |
                            O_SYNC | O_NOFOLLOW | LARGEFILE;

/* note_open - records an open for Tiers that evict by recency, and for hints, which advance as
 * programs open the announced Files. */
static void note_open(const struct redirect *s)
{
    struct flags *f = s->seg->flags;
    recency_note(f, s->file);
    if (!atomic_load_explicit((_Atomic uint32_t *)&f->hinted, memory_order_relaxed) ||
        f->opened + s->file >= f->seg.length)
        return;
    atomic_fetch_add_explicit((_Atomic uint8_t *)f + f->opened + s->file, 1,
                              memory_order_relaxed);
}

/* sampled - an open outside the Namespace, after `before` others, is sampled. */
static bool sampled(uint64_t before)
{
    return before < SAMPLED_FIRST ||
           before % (before < SAMPLED_EARLY ? SAMPLED_EVERY : SAMPLED_LATE) == 0;
}

/* origin - leaves an open of a File to the origin; redirect_count() counts it. */
static bool origin(struct redirect *s, enum counter why)
{
    note_open(s);
    s->cause = (int)why;
    return false;
}

/* set_place - stores the state word of a Replica, its Tier and source; false: no such Tier. */
static bool set_place(struct redirect *s, uint32_t word)
{
    s->word = word;
    s->tier = STATE_TIER(word);
    s->source = STATE_SOURCE(word);
    return s->tier < s->seg->catalog->tier_count;
}

/* name_replica - writes the path of the File's Replica in the Tier of its state word. */
static bool name_replica(struct redirect *s, const struct route *r,
                         const struct entry *e, uint32_t word)
{
    if (!set_place(s, word))
        return false;
    const struct catalog *c = s->seg->catalog;
    const struct tier *tier = &c->tiers[s->tier];
    uint32_t root = r->root;
    const struct entry *first = e->file & FILE_SHARED
                                    ? catalog_entry(c, (uint32_t)s->file, &root)
                                    : index_first(r->ix, e->file);
    uint64_t hash = r->hash;
    if (first != route_entry(r)) { /* a link, or another name of the same File */
        const struct index *ix = segments_index(s->seg, root);
        hash = index_hash(index_path(ix, first), index_path_bytes(first));
    }
    memcpy(s->staged, tier->path, tier->path_bytes);
    s->staged[tier->path_bytes] = '/';
    replica_name(first, c->roots[root].path_hash, hash,
                 s->staged + tier->path_bytes + 1);
    s->staged[tier->path_bytes + 1 + REPLICA_NAME_BYTES] = 0;
    s->path = s->staged;
    s->final = false;
    return true;
}

/* leave - ends the wait of an open, which has opened the File or falls back to the origin. */
static void leave(struct redirect *s)
{
    if (s->counted)
        wait_leave(s->seg, s->file);
    s->counted = false;
}

/* await - requests a cold File and, unless it is read through, waits for it; returns its state word
 * when it is ready, else 0 with the reason stored. */
static uint32_t await(struct redirect *s, uint32_t word)
{
    if (STATE_OF(word) == REPLICA_EVICTING || STATE_REASON(word) != REASON_NONE)
        return origin(s, wait_refusal(word));
    enum counter why = COUNTER_origin_timeout;
    if (!large_open_waits(s, word, &why))
        return origin(s, why);
    if (!s->counted)
        wait_enter(s->seg, s->file);
    s->counted = true;
    word = wait_ready(s->seg, s->file, &why);
    s->waited = true;
    if (word)
        return word;
    leave(s);
    return origin(s, why);
}

/* redirect_entry - decides for a managed regular File; `written` is read after READY was seen, so a
 * mark set before a write is never missed. */
bool redirect_entry(struct redirect *s, const struct route *r, const struct entry *e)
{
    uint64_t file = file_number(&s->seg->catalog->roots[r->root], e);
    s->file = file;
    s->root = r->root;
    s->size = e->size;
    s->waited = false;
    s->moves = 0;
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
        if (mark_seen(s->seg, r->root, r->ix, e)) {
            leave(s);
            return origin(s, COUNTER_origin_written);
        }
    }
    if (name_replica(s, r, e, word))
        return true;
    leave(s);
    return origin(s, COUNTER_origin_lost);
}

/* redirect_read - decides for reading: only a catalogued regular file can have a Replica. */
static bool redirect_read(struct redirect *s, int dirfd, const char *path, int flags)
{
    ROUTE(r);
    enum where where = route_at(s->seg, dirfd, path, &r);
    if (__builtin_expect(where != ROUTE_FOUND, 1)) {
        uint64_t before = counted(COUNTER_opens_outside);
        s->doubted = mark_any(s->seg);
        s->sampled = sampled(before);
        s->asked_at = dirfd;
        s->asked = path;
        if (route_is_below(&r, where))
            s->cause = CAUSE_SOUGHT;
        else
            count(COUNTER_opens_outside, 1);
        return false;
    }
    s->cause = CAUSE_SOUGHT;
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
        return false; /* an overlay separates the names of a changed file */
    if ((flags & O_NOATIME) && index_attr(r.ix, e)->uid != sys_geteuid())
        return false; /* for owners only, as the origin will report */
    s->cause = CAUSE_NONE;
    return redirect_entry(s, &r, e);
}

/* may_change - these flags of an open let the program change something. */
static bool may_change(int flags)
{
    return (flags & (O_ACCMODE | O_TRUNC | O_CREAT)) && !(flags & O_PATH);
}

/* seek_cause - marks an open that is not looked up: if it is of a regular file below a root, its
 * cause is determined later. */
static void seek_cause(struct redirect *s)
{
    if (s->seg && !may_change(s->flags) && !(s->flags & (O_PATH | O_DIRECTORY)))
        s->cause = CAUSE_SOUGHT;
}

/* decide - does redirect_open() for an open that redirect_begin() has begun. */
static bool decide(struct redirect *s, int dirfd, const char *path)
{
    int flags = s->flags;
    bool changes = may_change(flags);
    s->seg = changes ? attach_for_marking() : attach_for_serving();
    if (__builtin_expect(!s->seg || !path, 0)) {
        s->seg = attached_segments();
        s->doubted = s->seg && path && mark_any(s->seg);
        if (path)
            seek_cause(s);
        return false;
    }
    if (changes)
        return redirect_write(s, dirfd, path, true);
    if (flags & ~SERVABLE) {
        s->doubted = mark_any(s->seg) && !(flags & (O_PATH | O_DIRECTORY));
        seek_cause(s);
        return false;
    }
    return redirect_read(s, dirfd, path, flags);
}

/* redirect_open - true: open s->path first, then call redirect_opened(); false: open the program's
 * path, with the flags s->named. */
bool redirect_open(struct redirect *s, int dirfd, const char *path, int flags)
{
    redirect_begin(s, flags);
    return decide(s, dirfd, path);
}

/* decide_whole - does redirect_whole() for an open that redirect_begin() has begun. */
static bool decide_whole(struct redirect *s, int dirfd, const char *path)
{
    if (!may_change(s->flags))
        return decide(s, dirfd, path);
    s->seg = attach_for_marking();
    return s->seg && path && redirect_write(s, dirfd, path, false);
}

/* redirect_whole - does the same for calls whose flags cannot be changed. */
bool redirect_whole(struct redirect *s, int dirfd, const char *path, int flags)
{
    redirect_begin(s, flags);
    return decide_whole(s, dirfd, path);
}

/* redirect_stream - does the same for the mode of fopen(). */
bool redirect_stream(struct redirect *s, const char *path, const char *mode)
{
    redirect_begin(s, redirect_stream_flags(mode));
    s->streamed = true;
    return decide_whole(s, AT_FDCWD, path);
}

/* redirect_eases - drops O_DIRECT, which a Tier may not support (tmpfs before Linux 6.6): its pages
 * are in memory anyway; true: try again. */
bool redirect_eases(struct redirect *s)
{
    if (s->final || errno != EINVAL || !(s->flags & O_DIRECT))
        return false;
    s->flags &= ~O_DIRECT;
    return true;
}

/* count_served - counts a served open: a hit if the File was ready at the first look; else from a
 * peer that had it ready, decoded, or read from the origin. */
static void count_served(const struct redirect *s)
{
    enum counter opens = COUNTER_opens_miss, bytes = COUNTER_bytes_miss;
    if (s->source == SOURCE_PEER) {
        opens = COUNTER_opens_peer_hit;
        bytes = COUNTER_bytes_peer_hit;
    } else if (s->source == SOURCE_PACK) {
        opens = COUNTER_opens_unpacked;
        bytes = COUNTER_bytes_unpacked;
    }
    note_open(s);
    if (s->whole)
        count(COUNTER_whole_served, 1);
    if (!s->waited) {
        count((enum counter)(COUNTER_opens_hit_tier0 + s->tier), 1);
        count((enum counter)(COUNTER_bytes_hit_tier0 + s->tier), s->size);
        return;
    }
    count(opens, 1);
    count(bytes, s->size);
}

/* tier_failed - an open of a Replica has failed with an error that may be the Tier's. */
static bool tier_failed(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ESTALE || error == EIO ||
           error == ENXIO || error == ENODEV || error == ENOTCONN || error == EUCLEAN;
}

/* find_again - returns the state word of the Replica of a File whose former one has left its place,
 * or 0 with the reason stored. */
static uint32_t find_again(struct redirect *s)
{
    uint32_t root = s->root;
    const struct entry *e = catalog_entry(s->seg->catalog, (uint32_t)s->file, &root);
    const struct index *ix = segments_index(s->seg, root);
    uint32_t word = replica_load(s->seg->catalog, s->file);
    if (s->moves++ >= MOVES_MAX)
        return origin(s, COUNTER_origin_lost);
    if (STATE_OF(word) != REPLICA_READY)
        word = await(s, word);
    if (word && (mark_seen(s->seg, root, ix, e) || mark_root_seen(s->seg, s->root)))
        return origin(s, COUNTER_origin_written);
    return word;
}

/* move - sets s->path to the current place of the Replica; its own name stays the same. */
static void move(struct redirect *s)
{
    char name[REPLICA_NAME_BYTES + 1];
    const struct tier *tier = &s->seg->catalog->tiers[s->tier];
    memcpy(name, s->staged + tier->path_bytes + 1, sizeof(name));
    errno = s->kept_errno;
    s->path = NULL;
    uint32_t word = find_again(s);
    if (!word || !set_place(s, word))
        return;
    tier = &s->seg->catalog->tiers[s->tier];
    memcpy(s->staged, tier->path, tier->path_bytes);
    s->staged[tier->path_bytes] = '/';
    memcpy(s->staged + tier->path_bytes + 1, name, sizeof(name));
    s->path = s->staged;
}

/* redirect_moved - the Replica has left the place of s->path since its state was read, so a file
 * opened there must not be used. Then s->path is its new place, or NULL. open() orders this look
 * after itself: the kernel counts a reader with a full barrier before it looks for leases, and the
 * agent changes the word before it requests one. */
bool redirect_moved(struct redirect *s)
{
    if (s->final || !s->path)
        return false;
    uint32_t word = replica_load(s->seg->catalog, s->file);
    if (__builtin_expect(((word ^ s->word) & ~STATE_CONFIRMED) == 0, 1))
        return false;
    move(s);
    return true;
}

/* redirect_keep - keeps a Replica in the Pool until redirect_release(). */
void redirect_keep(struct redirect *s)
{
    wait_enter(s->seg, s->file);
    s->kept = true;
}

/* redirect_release - ends what redirect_keep() has begun, if it has. */
void redirect_release(struct redirect *s)
{
    if (s->kept)
        wait_leave(s->seg, s->file);
    s->kept = false;
}

/* redirect_opened - counts the result of the open of s->path; false: now open the program's path,
 * because the Replica is gone or may not be opened. */
bool redirect_opened(struct redirect *s, bool opened)
{
    if (s->held >= 0)
        sys_close(s->held);
    if (s->final && s->held < 0)
        errno = identity_error(s->held);
    if (s->final)
        return true;
    leave(s);
    if (__builtin_expect(!s->path, 0)) {
        errno = s->kept_errno;
        return false; /* and the reason is stored */
    }
    if (__builtin_expect(opened, 1)) {
        count_served(s);
        return true;
    }
    if (tier_failed(errno))
        wait_request(s->seg, s->file); /* the agent checks whether it still exists */
    errno = s->kept_errno;
    return origin(s, COUNTER_origin_lost);
}
