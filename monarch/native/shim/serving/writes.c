/* writes.c - opens that may change a file, and names that lead to a Replica: the file is marked,
 * and the origin's file replaces a Replica. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "shim/names/identity.h"
#include "shim/names/mark.h"
#include "shim/base/object.h"
#include "shim/base/process.h"
#include "shim/serving/redirects.h"
#include "shim/serving/splits.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"

/* lead - leads the open to the origin's file, which is held for it; a file that has lost its name
 * cannot be opened any more, and the Replica must not be changed instead. */
static void lead(struct redirect *s)
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

/* divert - leads an open for writing that would meet a Replica to the origin's file: by a path or
 * (NULL) by a descriptor. */
static void divert(struct redirect *s, int fd, const char *path, const struct stat *st)
{
    s->held = path ? identity_hold_path(s->seg, fd, path, st, &s->file)
                   : identity_hold(s->seg, fd, st, &s->file);
    if (s->held == IDENTITY_OTHER)
        return;
    if (s->held >= 0) /* else the open is refused */
        mark_file(s->seg, s->file, CHANGE_BYTES);
    invalidate_descriptor(s->seg, s->held,
                          CHANGE_BYTES); /* another root may have it, too */
    lead(s);
}

/* splits - O_TRUNC is removed from an open, because the descriptor can be truncated as well. This
 * holds for a name in the Catalog, except on an overlay, which would copy the file first; other
 * names must lie where it is known to hold. */
static bool splits(struct redirect *s, enum where where, const struct route *r)
{
    bool found = where == ROUTE_FOUND;
    bool unstable = found && r && s->seg->catalog->roots[r->root].unstable;
    if (unstable || !splits_flags(s->flags))
        return false;
    if (!found)
        s->parent = splits_parent(s->asked_at, s->asked);
    return found || splits_below(s->parent);
}

/* judge - finds and marks the target of a truncation before it: the process may not live to do so
 * after, and a Replica must not be truncated. */
static void judge(struct redirect *s, int dirfd, const char *path)
{
    struct stat st;
    if (!object_at(dirfd, path, true, &st))
        return;
    divert(s, dirfd, path, &st);
    invalidate_object(s->seg, dirfd, path, &st, CHANGE_BYTES);
}

/* redirect_write - prepares an open that may change a file: marks the file of its path; the opened
 * file is checked afterwards. `splits_allowed`: s->named may be other flags. */
bool redirect_write(struct redirect *s, int dirfd, const char *path,
                    bool splits_allowed)
{
    bool reads = (s->flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY; /* O_CREAT alone */
    ROUTE(r);
    enum where where = route_at(s->seg, dirfd, path, &r);
    if (!reads)
        mark_route(s->seg, &r, where, CHANGE_BYTES, !(s->flags & O_NOFOLLOW));
    if (s->flags & O_CREAT)
        mark_route(s->seg, &r, where, CHANGE_CREATE, true);
    s->asked_at = dirfd;
    s->asked = path;
    s->cuts = splits_allowed && splits(s, where, &r);
    if (s->cuts)
        s->named &= ~O_TRUNC;
    else if (s->flags & O_TRUNC)
        judge(s, dirfd, path);
    if (reads && route_is_below(&r, where))
        s->cause = CAUSE_SOUGHT;
    else
        count(where == ROUTE_OUTSIDE && !s->final ? COUNTER_opens_outside
                                                  : COUNTER_opens_write,
              1);
    s->writes = !s->final && (!reads || (s->flags & O_CREAT));
    return s->final;
}

/* absolute - writes the path that the program has opened; returns its length, 0: unknown. */
static size_t absolute(const struct redirect *s, char out[PATH_BYTES_MAX])
{
    size_t head = 0, n = strlen(s->asked);
    if (s->asked[0] != '/') {
        long cwd = s->asked_at == AT_FDCWD
                       ? sys_call(SYS_getcwd, (long)out, PATH_BYTES_MAX, 0, 0, 0)
                       : 0;
        if (cwd < 2 || out[0] != '/')
            return 0;
        head = (size_t)cwd;
        out[head - 1] = '/';
    }
    if (head + n >= PATH_BYTES_MAX)
        return 0;
    memcpy(out + head, s->asked, n + 1);
    return head + n;
}

/* keep_path - stores the first paths for which the Catalog has another name. */
static void keep_path(const struct redirect *s, const struct stat *st)
{
    struct counters *c = s->seg->counters;
    _Atomic uint32_t *taken = (_Atomic uint32_t *)&c->elsewhere_taken;
    if (!s->asked || atomic_load_explicit(taken, memory_order_relaxed) >= ELSEWHERE_MAX)
        return;
    uint32_t n = atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
    if (n >= ELSEWHERE_MAX)
        return;
    struct elsewhere *e = &c->elsewhere[n];
    e->dev = st->st_dev;
    e->ino = st->st_ino;
    atomic_store_explicit((_Atomic uint32_t *)&e->bytes, (uint32_t)absolute(s, e->path),
                          memory_order_release);
}

/* sample - counts another name of a dataset, for the report. */
static void sample(const struct redirect *s, const struct stat *st)
{
    for (uint32_t i = 0; i < s->seg->catalog->root_count; i++) {
        const struct index *ix = segments_index(s->seg, i);
        int64_t found = index_find_inode(ix, st->st_dev, st->st_ino);
        if (found < 0 || index_entry(ix, (uint32_t)found)->file & FILE_SHARED)
            continue; /* not managed, or found in another root */
        count(COUNTER_opens_elsewhere, 1);
        keep_path(s, st);
    }
}

/* changed - the File is marked, or its agent has ended, so that this is unknown. */
static bool changed(const struct identity *id)
{
    return mark_seen(id->seg, id->root, id->ix, id->entry) ||
           segments_superseded(id->seg);
}

/* outdated - the descriptor leads to a Replica by another name; its File was written to since. */
static bool outdated(struct redirect *s, int fd, const struct stat *st)
{
    struct identity id;
    if (!identity_of(s->seg, st, &id) || !changed(&id))
        return false;
    s->held = identity_hold(s->seg, fd, st, &s->file);
    /* A File that has only lost its names is the Replica; one that was written to is nowhere. */
    return s->held >= 0 || (s->held == IDENTITY_GONE &&
                            mark_of(id.seg, id.root, id.file) & MARKED_BYTES);
}

/* redirect_found - checks the file that an outside path has led to. True: that is a Replica whose
 * File was written to since; open s->path instead. */
bool redirect_found(struct redirect *s, int fd)
{
    struct stat st;
    if (fd < 0 || !object_of(fd, &st) || !S_ISREG(st.st_mode))
        return false;
    if (s->sampled)
        sample(s, &st);
    if (!s->doubted || !outdated(s, fd, &st))
        return false;
    lead(s);
    return true;
}

/* redirect_stream_flags - returns the open flags of a mode of fopen(); glibc accepts a '+' after a
 * ',' as well. */
int redirect_stream_flags(const char *mode)
{
    int flags = O_RDONLY;
    if (mode && (mode[0] == 'w' || mode[0] == 'a'))
        flags = O_WRONLY | O_CREAT | (mode[0] == 'w' ? O_TRUNC : 0);
    for (const char *m = mode; m && *m; m++)
        if (*m == '+')
            flags = O_RDWR | (flags & (O_CREAT | O_TRUNC));
    return flags;
}

/* reread - checks a path or (NULL) a descriptor to be opened once more for reading: true if its
 * Replica is outdated. */
static bool reread(struct redirect *s, const char *path, int fd)
{
    struct stat st;
    if (!s->seg || !mark_any(s->seg))
        return false;
    int found = path ? object_hold(AT_FDCWD, path, 0) : fd;
    if (object_of(found, &st) && outdated(s, found, &st))
        lead(s);
    if (path && found >= 0)
        sys_close(found);
    return s->final;
}

/* redirect_reopened - prepares freopen(), whose failure closes the stream: a path to a Replica must
 * be known before. redirect_stream() did not redirect the path; NULL means the file of `fd` once
 * more. */
bool redirect_reopened(struct redirect *s, const char *path, const char *mode, int fd)
{
    struct stat st;
    if (!path) {
        redirect_begin(s, redirect_stream_flags(mode));
        s->seg = attach_for_marking();
        s->writes = s->seg && s->flags != O_RDONLY;
    }
    if (!s->writes)
        return reread(s, path, fd);
    if (path ? object_at(AT_FDCWD, path, true, &st) : object_of(fd, &st))
        divert(s, path ? AT_FDCWD : fd, path, &st);
    return s->final;
}

/* look - looks at the file that an open led to, or would. fstat() is quicker, but may ask a
 * server. */
static bool look(const struct redirect *s, int dirfd, const char *path, int fd,
                 struct stat *st)
{
    if (fd < 0)
        return object_at(dirfd, path, true, st);
    return s->cuts && s->parent ? sys_fstat(fd, st) == 0 : object_of(fd, st);
}

/* is_made - the open may have created this empty file: others may write to it by now, and O_TRUNC
 * would not have truncated that. */
static bool is_made(const struct redirect *s, int fd, const struct stat *st)
{
    return s->flags & O_CREAT && !st->st_size && object_new(fd);
}

/* redirect_diverts - true: the open for writing met a Replica, or was refused by the mode of one;
 * open s->path instead. `fd` is the result of the open. */
bool redirect_diverts(struct redirect *s, int dirfd, const char *path, int fd)
{
    struct stat st;
    if (!s->seg || !s->writes || (fd < 0 && errno != EACCES))
        return false;
    if ((s->flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY) { /* O_CREAT alone */
        if (!object_of(fd, &st))
            return false;
        invalidate_new(s->seg, fd, &st);
        s->doubted = mark_any(s->seg);
        return redirect_found(s, fd);
    }
    if (!look(s, dirfd, path, fd, &st))
        return false;
    divert(s, path ? dirfd : fd, path, &st);
    if (fd < 0 || s->final)
        return s->final;
    s->cuts = s->cuts && S_ISREG(st.st_mode) && !is_made(s, fd, &st);
    if (S_ISREG(st.st_mode))
        splits_learn(s->parent, fd, &st);
    invalidate_object(s->seg, fd, NULL, &st, CHANGE_BYTES);
    if (s->flags & O_CREAT) /* a new file may have the inode of a catalogued one */
        invalidate_new(s->seg, fd, &st);
    return false;
}

/* wants_truncation - an open without O_TRUNC may have failed because of that. */
static bool wants_truncation(int error)
{
    return error == EPERM || error == EACCES || error == EINVAL ||
           error == EOPNOTSUPP || error == ENOSYS;
}

/* redirect_cut - truncates a file that was opened without its O_TRUNC: it is no Replica, and is
 * marked by now. False: it could not be opened or truncated so, and must be opened with O_TRUNC
 * after all, by s->named. */
bool redirect_cut(struct redirect *s, int dirfd, const char *path, int *fd)
{
    s->named = s->flags;
    if (*fd < 0 ? !wants_truncation(errno)
                : sys_call(SYS_ftruncate, *fd, 0, 0, 0, 0) == 0)
        return true;
    splits_forget(s->parent);
    if (*fd >= 0)
        sys_close(*fd);
    *fd = -1;
    judge(s, dirfd, path);
    if (!s->final)
        return false;
    if (s->held >= 0) /* the path leads to a Replica by now */
        sys_close(s->held);
    errno = identity_error(s->held);
    return true;
}

/* redirect_handle - prepares an open without a path, with the flags s->named; then
 * redirect_diverts() decides. */
void redirect_handle(struct redirect *s, int flags)
{
    redirect_begin(s, flags);
    s->writes = (flags & (O_ACCMODE | O_TRUNC)) != 0;
    s->seg = attach_for_marking();
    s->doubted = s->seg && !s->writes && !(flags & O_PATH) && mark_any(s->seg);
    s->cuts = s->seg && s->writes && splits(s, ROUTE_FOUND, NULL);
    if (s->cuts)
        s->named &= ~O_TRUNC;
}

/* redirect_written - marks the file of an open for writing that is not to be repeated. */
void redirect_written(struct redirect *s, int fd)
{
    struct stat st;
    if (!s->seg || !(s->writes || s->final) || !object_of(fd, &st))
        return;
    invalidate_descriptor(s->seg, fd, CHANGE_BYTES);
    if (s->flags & O_CREAT)
        invalidate_new(s->seg, fd, &st);
}
