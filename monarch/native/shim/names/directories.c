/* directories.c - answers for the names in a directory: only if all of them are Entries, and the
 * origin has confirmed within the last second that the directory has not changed since the scan. */
#include "shim/names/directories.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "shim/names/mark.h"
#include "shim/names/mounts.h"
#include "shim/base/object.h"
#include "shim/base/process.h"
#include "shim/base/sys.h"

enum {
    NAME_BYTES_SURE = 128, /* a longer name is an error on some file systems */
    PROBES_MAX = 16,
};

/* Some file systems keep times in units of one or two seconds: a directory that changed so shortly
 * before the scan may have changed again with the same time. */
static const int64_t COARSE_NS = 2000000000;

static const unsigned WANTED = STATX_TYPE | STATX_INO | STATX_MTIME | STATX_CTIME;

/* word_of - returns the CHECKED_... word of a directory; NULL: none. */
static _Atomic uint32_t *word_of(const struct segments *seg, uint32_t root,
                                 const struct entry *e)
{
    const struct catalog *c = seg->catalog;
    struct flags *f = seg->flags;
    uint64_t number = (uint64_t)c->roots[root].dir_base - c->file_count + e->file;
    uint64_t at = f->checked + number * sizeof(uint32_t);
    if (!f->checked || number >= c->dir_count || at > f->seg.length - sizeof(uint32_t))
        return NULL;
    return (_Atomic uint32_t *)((char *)f + at);
}

static const struct entry *entry_of(const struct directory *at)
{
    return index_entry(at->ix, at->entry);
}

/* time_now - returns the time in the units of these words; never CHECKED_NEVER. */
static uint32_t time_now(void)
{
    struct timespec t;
    sys_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0, 0);
    uint64_t ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return (uint32_t)((ns >> CHECKED_UNIT_BITS) % (CHECKED_TIMES - 1)) + 1;
}

/* fresh - the directory was found unchanged within the last second. */
static bool fresh(uint32_t word)
{
    uint32_t then = word & (CHECKED_TIMES - 1), now = time_now();
    uint32_t ago = (now >= then ? now : now + CHECKED_TIMES - 1) - then;
    return then != CHECKED_NEVER && ago < CHECKED_UNITS;
}

static int64_t nanoseconds(const struct statx_timestamp *t)
{
    return t->tv_sec * (int64_t)1000000000 + t->tv_nsec;
}

/* ask - asks the origin, whatever the client has cached, and stores the answer. A different time of
 * change shows changes that programs have hidden by setting the other time. */
static bool ask(const struct directory *at, _Atomic uint32_t *word, int fd,
                const char *path)
{
    const struct entry *e = entry_of(at);
    struct statx x;
    uint32_t now = time_now(), seen = atomic_load_explicit(word, memory_order_relaxed);
    int link = index_is_outer(at->ix, e) ? 0 : AT_SYMLINK_NOFOLLOW;
    long rc = sys_call(SYS_statx, fd, (long)path,
                       AT_STATX_FORCE_SYNC | AT_NO_AUTOMOUNT |
                           (path[0] ? link : AT_EMPTY_PATH),
                       WANTED, (long)&x);
    if (rc < 0 || (x.stx_mask & WANTED) != WANTED || x.stx_ino != e->ino ||
        makedev(x.stx_dev_major, x.stx_dev_minor) != index_attr(at->ix, e)->dev)
        return false;
    if (nanoseconds(&x.stx_mtime) != e->mtime_ns ||
        nanoseconds(&x.stx_ctime) != e->ctime_ns) {
        atomic_fetch_or_explicit(word, CHECKED_STALE, memory_order_relaxed);
        return false;
    }
    while (!(seen & CHECKED_STALE) && !atomic_compare_exchange_weak_explicit(
                                          word, &seen, (seen & CHECKED_EXACT) | now,
                                          memory_order_relaxed, memory_order_relaxed)) {
    }
    return !(seen & CHECKED_STALE);
}

/* settled - the scan has read the directory, all names in it are Entries, and it had not
 * changed for a while. */
static bool settled(const struct directory *at)
{
    const struct entry *e = entry_of(at);
    int64_t last = e->mtime_ns > e->ctime_ns ? e->mtime_ns : e->ctime_ns;
    return e->file != NONE32 && index_listed(at->ix, at->entry) &&
           last < at->ix->scanned_ns - COARSE_NS;
}

/* unchanged - the directory matches the Catalog, checked by a descriptor or by a path. Marks are
 * read last: they are set before a name is created. */
static bool unchanged(const struct directory *at, int fd, const char *path)
{
    const struct segments *seg = at->seg;
    _Atomic uint32_t *word = word_of(seg, at->root, entry_of(at));
    if (!word || seg->elsewhere || !settled(at))
        return false;
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if ((seen & CHECKED_STALE) || (!fresh(seen) && !ask(at, word, fd, path)))
        return false;
    if (seg->catalog->roots[at->root].unstable && mark_any(seg))
        return false;
    return !mark_seen(seg, at->root, at->ix, entry_of(at));
}

/* directory_stale - the origin has reported that the directory has changed since the scan. */
bool directory_stale(const struct segments *seg, uint32_t root, const struct entry *e)
{
    _Atomic uint32_t *word = e->file == NONE32 ? NULL : word_of(seg, root, e);
    return word && (atomic_load_explicit(word, memory_order_relaxed) & CHECKED_STALE);
}

/* path_of - writes the agent's path of a directory; returns its length, 0: too long. */
static size_t path_of(const struct directory *at, char out[PATH_BYTES_MAX])
{
    return catalog_path(at->seg->catalog, at->root, entry_of(at), out, PATH_BYTES_MAX);
}

/* named - the kernel's path of the descriptor is that of the directory: unstable inode numbers do
 * not identify directories. */
static bool named(const struct directory *at, int fd)
{
    char name[FD_NAME_BYTES];
    SCRATCH(own);
    SCRATCH(real);
    sys_fd_name(name, fd);
    size_t n = own && real ? path_of(at, own) : 0;
    return n > 0 && sys_readlink(name, real, PATH_BYTES_MAX) == (long)n &&
           memcmp(own, real, n) == 0;
}

/* directory_of - finds the catalogued directory of a descriptor; false: none. */
bool directory_of(const struct segments *seg, int fd, struct directory *out)
{
    struct stat st;
    if (!object_of(fd, &st) || !S_ISDIR(st.st_mode) ||
        !route_directory(seg, st.st_dev, st.st_ino, &out->root, &out->entry))
        return false;
    out->seg = seg;
    out->ix = segments_index(seg, out->root);
    return true;
}

/* directory_holds - a descriptor still leads to this directory. */
bool directory_holds(const struct directory *at, int fd)
{
    struct stat st;
    const struct entry *e = entry_of(at);
    return object_of(fd, &st) && st.st_ino == e->ino &&
           st.st_dev == index_attr(at->ix, e)->dev;
}

/* directory_current - a descriptor leads to this directory, and its names are those of the
 * Catalog. */
bool directory_current(const struct directory *at, int fd)
{
    return directory_holds(at, fd) && !mounts_apart(at->seg, at->root, fd, "") &&
           (!at->seg->catalog->roots[at->root].unstable || named(at, fd)) &&
           unchanged(at, fd, "");
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ordinary - the name does not exist if no listing has it. Servers have directories that they do
 * not list, such as .snapshot, and other names for those that they do. */
static bool ordinary(const char *name, size_t n)
{
    if (n == 0 || n > NAME_BYTES_SURE || name[0] == '.' || name[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_letter(name[i]) && (name[i] < '0' || name[i] > '9') &&
            !strchr("._-+=,@", name[i]))
            return false;
    return true;
}

/* swap_case - writes a name with letters of the other case; false: it has no letters. */
static bool swap_case(char *out, const char *name, size_t n)
{
    bool swapped = false;
    for (size_t i = 0; i < n; i++) {
        out[i] = is_letter(name[i]) ? (char)(name[i] ^ 0x20) : name[i];
        swapped |= is_letter(name[i]);
    }
    out[n] = 0;
    return swapped;
}

/* probe - asks the origin for a name that is listed only in the other case. `path` is that of the
 * directory. -1: no such name; 1: it exists; 0: it does not. */
static int probe(const struct directory *at, char *path, size_t n)
{
    size_t head = index_path_bytes(entry_of(at)), own = n - head;
    uint64_t place = 0;
    struct stat st;
    for (int i = 0; i < PROBES_MAX; i++) {
        uint32_t child = index_listed_at(at->ix, at->entry, &place);
        if (child == NONE32)
            break;
        const struct entry *e = index_entry(at->ix, child);
        size_t name = head ? head + 1 : 0, bytes = index_path_bytes(e) - name;
        path[n] = '/';
        if (n + 1 + bytes < PATH_BYTES_MAX &&
            swap_case(path + n + 1, index_path(at->ix, e) + name, bytes) &&
            index_find(at->ix, path + own + !head, name + bytes) < 0) {
            int rc = sys_stat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW);
            return rc == 0 ? 1 : rc == -ENOENT ? 0 : -1;
        }
    }
    return -1;
}

/* exact - names in the directory differ if only their case differs. The origin is asked once. */
static bool exact(const struct directory *at, char *path, size_t n)
{
    _Atomic uint32_t *word = word_of(at->seg, at->root, entry_of(at));
    if (atomic_load_explicit(word, memory_order_relaxed) & CHECKED_EXACT)
        return true;
    int found = probe(at, path, n);
    path[n] = 0;
    if (found >= 0)
        atomic_fetch_or_explicit(word, found ? CHECKED_STALE : CHECKED_EXACT,
                                 memory_order_relaxed);
    return found == 0;
}

/* path_resolves_to_entry - the text of the path resolves to the catalogued entry. */
static bool path_resolves_to_entry(const struct segments *seg, const struct route *r)
{
    return !r->apart &&
           (r->spelling == NONE32 || mounts_ground(seg, r->spelling) == GROUND_SAME);
}

/* behind - returns the directory outside the root to which a link leads, if its names are below the
 * link's own path; otherwise the Entry itself. */
static uint32_t behind(const struct index *ix, uint32_t entry)
{
    const struct entry *e = index_entry(ix, entry);
    bool link = S_ISLNK(index_attr(ix, e)->mode) && e->target != NONE32;
    bool leaves = link && index_is_outer(ix, index_entry(ix, e->target));
    return leaves && index_entry(ix, e->target)->path == e->path ? e->target : entry;
}

/* holder_of - finds the last catalogued directory of a path; false: the path passes through
 * something else, or the next name is not ordinary. */
static bool holder_of(const struct segments *seg, const struct route *r,
                      struct directory *out)
{
    size_t end = r->rel_bytes;
    while (end > 0) {
        size_t start = end;
        while (start > 0 && r->rel[start - 1] != '/')
            start--;
        size_t head = start > 0 ? start - 1 : 0;
        int64_t found = index_find(r->ix, r->rel, head);
        if (found >= 0) {
            uint32_t entry = behind(r->ix, (uint32_t)found);
            *out = (struct directory){seg, r->ix, r->root, entry};
            return S_ISDIR(index_attr(r->ix, entry_of(out))->mode) &&
                   ordinary(r->rel + start, end - start);
        }
        end = head;
    }
    return false;
}

/* directory_lacks - the path of a route that was not found leads nowhere. */
bool directory_lacks(const struct segments *seg, const struct route *r)
{
    struct directory at;
    SCRATCH(path);
    if (!path || !path_resolves_to_entry(seg, r) || !holder_of(seg, r, &at))
        return false;
    size_t n = path_of(&at, path);
    if (n == 0 || !unchanged(&at, AT_FDCWD, path) || !exact(&at, path, n) ||
        mark_seen(seg, at.root, at.ix, entry_of(&at)))
        return false;
    count(COUNTER_absent_answered, 1);
    return true;
}

/* directory_unchanged - the directory of an Entry matches the Catalog. */
bool directory_unchanged(const struct segments *seg, uint32_t root,
                         const struct index *ix, const struct entry *e)
{
    SCRATCH(path);
    struct directory at = {seg, ix, root, (uint32_t)(e - index_entry(ix, 0))};
    return path && path_of(&at, path) && unchanged(&at, AT_FDCWD, path);
}

/* directory_prepare - asks the origin before a directory is opened, if that is needed: the answer,
 * which the client caches, is enough for the open, too. */
void directory_prepare(const struct segments *seg, int dirfd, const char *path)
{
    ROUTE(r);
    if (!seg || route_at(seg, dirfd, path, &r) != ROUTE_FOUND ||
        !path_resolves_to_entry(seg, &r))
        return;
    const struct entry *e = index_entry(r.ix, behind(r.ix, r.entry));
    if (S_ISDIR(index_attr(r.ix, e)->mode))
        directory_unchanged(seg, r.root, r.ix, e);
}

/* directory_lacks_at - the same as directory_lacks() for an open that only reads, by an
 * absolute path. An open of a directory is prepared. */
bool directory_lacks_at(const struct segments *seg, int dirfd, const char *path,
                        int flags)
{
    ROUTE(r);
    if (!seg || !path || (flags & (O_ACCMODE | O_CREAT | O_TRUNC)))
        return false;
    if ((flags & O_DIRECTORY) && attach_for_serving() == seg)
        directory_prepare(seg, dirfd, path);
    r.apart = false;
    return path[0] == '/' && route_absolute(seg, path, &r) == ROUTE_UNKNOWN &&
           attach_for_serving() == seg && directory_lacks(seg, &r);
}
