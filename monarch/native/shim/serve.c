/* serve.c - decides who answers an open: a ready Replica, one worth waiting for, or the
 * origin; and counts which. */
#include "serve.h"

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
#include "trace.h"
#include "wait.h"

#if defined(__x86_64__)
enum { LARGEFILE = 0100000 }; /* what 32-bit habits pass; 0 in the headers */
#else
enum { LARGEFILE = O_LARGEFILE };
#endif

enum { SAMPLED_FIRST = 64, SAMPLED_EVERY = 256 }; /* outside opens that are looked at */

/* What a read-only open may ask for and still be served. */
static const int SERVABLE = O_CLOEXEC | O_NOATIME | O_NOCTTY | O_NONBLOCK | O_DIRECT |
                            O_SYNC | O_NOFOLLOW | LARGEFILE;

static bool origin(const struct serving *s, int why)
{
    count(COUNTER_opens_origin, 1);
    count(COUNTER_bytes_origin, s->size);
    if (why >= 0)
        count((enum counter)why, 1);
    return false;
}

/* name_replica - writes the path of the File's Replica in the Tier of its state word. */
static bool name_replica(struct serving *s, const struct route *r,
                         const struct entry *e, uint32_t word)
{
    s->tier = STATE_TIER(word);
    s->source = STATE_SOURCE(word);
    if (s->tier >= s->b->catalog->tier_count)
        return false;
    const struct tier *tier = &s->b->catalog->tiers[s->tier];
    const struct entry *first = index_first(r->ix, e->file);
    uint64_t hash = r->hash;
    if (first != route_entry(r)) /* a link, or another name of the same File */
        hash = index_hash(index_path(r->ix, first), index_path_bytes(first));
    memcpy(s->staged, tier->path, tier->path_bytes);
    s->staged[tier->path_bytes] = '/';
    replica_name(first, s->b->catalog->roots[r->root].path_hash, hash,
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
static uint32_t await(struct serving *s, uint32_t word)
{
    if (STATE_OF(word) == REPLICA_EVICTING || STATE_REASON(word) != REASON_NONE)
        return origin(s, (int)wait_refusal(word));
    if (!waits(s->b->catalog, s->size)) {
        if (wait_agent_lives(s->b) && STATE_OF(word) == REPLICA_ABSENT)
            wait_request(s->b, s->file);
        return origin(s, COUNTER_origin_large);
    }
    if (process_borrowed())
        return origin(s, COUNTER_origin_vfork);
    enum counter why = COUNTER_origin_timeout;
    word = wait_ready(s->b, s->file, &why);
    s->waited = true;
    return word ? word : origin(s, (int)why);
}

/* serve_entry - decides for a managed regular File; `written` is read after READY was
 * seen, so that a mark set before a write is never missed. */
bool serve_entry(struct serving *s, const struct route *r, const struct entry *e)
{
    uint64_t file = (uint64_t)s->b->catalog->roots[r->root].file_base + e->file;
    s->file = file;
    s->size = e->size;
    s->waited = false;
    if (file >= s->b->catalog->file_count)
        return false;
    __builtin_prefetch(&s->b->flags->written[file]);
    uint32_t word = replica_load(s->b->catalog, file);
    if (mark_seen(s->b, r->root, r->ix, e))
        return origin(s, COUNTER_origin_written);
    if (STATE_OF(word) != REPLICA_READY) {
        word = await(s, word);
        if (!word)
            return false;
        if (mark_seen(s->b, r->root, r->ix, e))
            return origin(s, COUNTER_origin_written);
    }
    return name_replica(s, r, e, word) || origin(s, COUNTER_origin_lost);
}

/* lead - the open is to take the origin's file, which is held for it; what has lost its
 * name cannot be opened any more, and the Replica must not be changed instead. */
static void lead(struct serving *s)
{
    s->final = true;
    s->cuts = false;
    s->flags &= ~O_NOFOLLOW; /* the name in /proc is a link */
    s->path = s->staged;
    if (s->held >= 0)
        sys_fd_name(s->staged, s->held);
    else
        s->staged[0] = 0;
}

/* divert - leads an open for writing that would meet a Replica to the origin's file: by a
 * path, or where that is NULL by a descriptor. */
static void divert(struct serving *s, int fd, const char *path, const struct stat *st)
{
    s->held = path ? identity_hold_path(s->b, fd, path, st, &s->file)
                   : identity_hold(s->b, fd, st, &s->file);
    if (s->held == IDENTITY_OTHER)
        return;
    if (s->held != IDENTITY_TIER)
        mark_file(s->b, s->file);
    trace_descriptor(s->b, s->held, CHANGE_BYTES); /* another root may have it, too */
    lead(s);
}

/* may_reveal - such a name, or one in a Tier, is likely to lead to a Replica. */
static bool may_reveal(const struct board *b, const char *path)
{
    if (object_in_proc(path))
        return true;
    for (uint32_t t = 0; t < b->catalog->tier_count; t++)
        if (strncmp(path, b->catalog->tiers[t].path, b->catalog->tiers[t].path_bytes) ==
            0)
            return true;
    return false;
}

/* serve_alias - another name of a redirected descriptor, whose File was written to since:
 * what is opened anew is the origin's. */
static bool serve_alias(struct serving *s, int dirfd, const char *path)
{
    struct identity id;
    struct stat st;
    if (!object_at(dirfd, path, true, &st) || !identity_of(s->b, &st, &id) ||
        !mark_seen(s->b, id.root, id.ix, id.entry))
        return false;
    s->held = identity_hold_path(s->b, dirfd, path, &st, &s->file);
    if (s->held < 0) /* only the Replica is left of it, or meant */
        return false;
    lead(s);
    return true;
}

/* serve_read - a read-only open: only a catalogued regular file can have a Replica. */
static bool serve_read(struct serving *s, int dirfd, const char *path, int flags)
{
    ROUTE(r);
    enum where where = route_at(s->b, dirfd, path, &r);
    if (__builtin_expect(where == ROUTE_OUTSIDE && object_in_proc(path), 0) &&
        serve_alias(s, dirfd, path))
        return true;
    if (__builtin_expect(where != ROUTE_FOUND, 1)) {
        uint64_t before = counted(COUNTER_opens_outside);
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
    if ((flags & O_NOATIME) && index_attr(r.ix, e)->uid != sys_geteuid())
        return false; /* for owners only, as the origin will say */
    return serve_entry(s, &r, e);
}

/* serve_write - an open that may change something: marks what its path names. What a
 * truncation would meet is judged before it, too, unless serve_cut() does that: the
 * process may not live to do so after, and a Replica must not be cut. All others are
 * found out afterwards. */
static bool serve_write(struct serving *s, int dirfd, const char *path, int flags)
{
    bool reads = (flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY; /* O_CREAT alone */
    bool truncates = (flags & O_TRUNC) && !s->cuts;
    struct stat st;
    if (!reads && (truncates || may_reveal(s->b, path)) &&
        object_at(dirfd, path, true, &st)) {
        divert(s, dirfd, path, &st);
        mark_object(s->b, &st, CHANGE_BYTES);
    }
    if (s->final) {
        count(COUNTER_opens_write, 1);
        return true;
    }
    ROUTE(r);
    enum where where = route_at(s->b, dirfd, path, &r);
    if (!reads)
        mark_route(s->b, &r, where, CHANGE_BYTES, !(flags & O_NOFOLLOW));
    if (flags & O_CREAT)
        mark_route(s->b, &r, where, CHANGE_CREATE, true);
    count(where == ROUTE_OUTSIDE ? COUNTER_opens_outside : COUNTER_opens_write, 1);
    s->writes = !reads || (flags & O_CREAT);
    return false;
}

static void begin(struct serving *s, int flags)
{
    s->writes = s->final = s->sampled = s->cuts = false;
    s->held = IDENTITY_OTHER;
    s->flags = s->named = flags;
}

/* may_change - these flags of an open let the program change something. */
static bool may_change(int flags)
{
    return (flags & (O_ACCMODE | O_TRUNC | O_CREAT)) && !(flags & O_PATH);
}

/* split - keeps O_TRUNC from an open, where the descriptor will do for it as well; where
 * the file is sure to be new, there is nothing to truncate. */
static void split(struct serving *s)
{
    int mode = s->flags & O_ACCMODE;
    s->cuts = s->b && (s->flags & O_TRUNC) && !(s->flags & (O_EXCL | O_DIRECTORY)) &&
              (mode == O_WRONLY || mode == O_RDWR);
    if (s->cuts)
        s->named &= ~O_TRUNC;
}

/* serve_open - true: open s->path first, then ask serve_opened(); false: open what the
 * program named, with the flags s->named. */
bool serve_open(struct serving *s, int dirfd, const char *path, int flags)
{
    bool changes = may_change(flags);
    begin(s, flags);
    s->b = changes ? board_marking() : board_enter();
    if (!s->b || !path)
        return false;
    if (changes) {
        split(s);
        return serve_write(s, dirfd, path, flags);
    }
    if (flags & ~SERVABLE)
        return false;
    return serve_read(s, dirfd, path, flags);
}

/* serve_whole - the same for calls whose flags cannot be changed. */
bool serve_whole(struct serving *s, int dirfd, const char *path, int flags)
{
    if (!may_change(flags))
        return serve_open(s, dirfd, path, flags);
    begin(s, flags);
    s->b = board_marking();
    return s->b && path && serve_write(s, dirfd, path, flags);
}

/* stream_flags - what the mode of fopen() asks for. */
static int stream_flags(const char *mode)
{
    int flags = O_RDONLY;
    if (mode && (mode[0] == 'w' || mode[0] == 'a'))
        flags = O_WRONLY | O_CREAT | (mode[0] == 'w' ? O_TRUNC : 0);
    for (const char *m = mode; m && *m && *m != ','; m++)
        if (*m == '+')
            flags = O_RDWR | (flags & (O_CREAT | O_TRUNC));
    return flags;
}

/* serve_stream - the same for the mode of fopen(). */
bool serve_stream(struct serving *s, const char *path, const char *mode)
{
    return serve_whole(s, AT_FDCWD, path, stream_flags(mode));
}

/* serve_reopened - the same for freopen(), whose failure closes the stream: what leads to
 * a Replica has to be known before. No path means the file of `fd` once more. */
bool serve_reopened(struct serving *s, const char *path, const char *mode, int fd)
{
    struct stat st;
    bool first = path && serve_stream(s, path, mode);
    if (path && (first || !s->writes))
        return first;
    if (!path) {
        begin(s, stream_flags(mode));
        s->b = s->flags == O_RDONLY ? NULL : board_marking();
        s->writes = s->b != NULL;
    }
    if (s->writes && (path ? object_at(AT_FDCWD, path, true, &st) : object_of(fd, &st)))
        divert(s, path ? AT_FDCWD : fd, path, &st);
    return s->final;
}

/* serve_eases - a Tier may know no O_DIRECT (tmpfs before Linux 6.6): its pages are in
 * memory anyway, so try without. */
bool serve_eases(struct serving *s)
{
    if (s->final || errno != EINVAL || !(s->flags & O_DIRECT))
        return false;
    s->flags &= ~O_DIRECT;
    return true;
}

/* count_served - a hit is what was ready at the first look; what was waited for came
 * from a peer that had it ready, or the origin had to be read for it. */
static void count_served(const struct serving *s)
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

/* serve_opened - counts how the open of s->path went; false: now open what the program
 * named, the Replica is gone or may not be opened. */
bool serve_opened(struct serving *s, bool opened)
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
        wait_request(s->b, s->file); /* the agent looks whether it is still there */
    errno = s->kept_errno;
    return origin(s, COUNTER_origin_lost);
}

/* serve_diverts - true: the open for writing met a Replica, or was kept out of one by its
 * mode; open s->path instead. `fd` is what the open gave. */
bool serve_diverts(struct serving *s, int dirfd, const char *path, int fd)
{
    struct stat st;
    if (!s->b || !s->writes || (fd < 0 && errno != EACCES))
        return false;
    if ((s->flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY) { /* O_CREAT alone */
        if (object_of(fd, &st))
            trace_new(s->b, fd, &st);
        return false;
    }
    if (fd >= 0 ? !object_of(fd, &st) : !object_at(dirfd, path, true, &st))
        return false;
    divert(s, path ? dirfd : fd, path, &st);
    if (fd < 0 || s->final)
        return s->final;
    s->cuts = s->cuts && S_ISREG(st.st_mode);
    trace_object(s->b, fd, NULL, &st, CHANGE_BYTES);
    if (s->flags & O_CREAT) /* a new file may have the inode of a catalogued one */
        trace_new(s->b, fd, &st);
    return false;
}

/* serve_cut - truncates what O_TRUNC was kept from: it is no Replica, and is marked by
 * now. Returns what the open returns. */
int serve_cut(const struct serving *s, int fd)
{
    long rc = s->cuts && fd >= 0 ? sys_call(SYS_ftruncate, fd, 0, 0, 0, 0) : 0;
    if (__builtin_expect(rc == 0, 1))
        return fd;
    sys_close(fd);
    errno = (int)-rc;
    return -1;
}

/* serve_handle - before an open that no path leads to: with the flags s->named, and then
 * serve_diverts() tells what to do. */
void serve_handle(struct serving *s, int flags)
{
    begin(s, flags);
    s->writes = (flags & (O_ACCMODE | O_TRUNC)) != 0;
    s->b = s->writes ? board_marking() : NULL;
    split(s);
}

/* serve_sample - tells the user, by a counter, of another name for a dataset. */
void serve_sample(const struct serving *s, int fd)
{
    struct stat st;
    if (!object_of(fd, &st) || !S_ISREG(st.st_mode))
        return;
    for (uint32_t i = 0; i < s->b->catalog->root_count; i++) {
        const struct index *ix = board_index(s->b, i);
        int64_t found = index_find_inode(ix, st.st_dev, st.st_ino);
        if (found >= 0 && index_entry(ix, (uint32_t)found)->file != NONE32)
            count(COUNTER_opens_elsewhere, 1);
    }
}

/* serve_written - after an open for writing that is not to be done again. */
void serve_written(struct serving *s, int fd)
{
    struct stat st;
    if (!s->b || !(s->writes || s->final) || !object_of(fd, &st))
        return;
    trace_descriptor(s->b, fd, CHANGE_BYTES);
    if (s->flags & O_CREAT)
        trace_new(s->b, fd, &st);
}
