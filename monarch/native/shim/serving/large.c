/* large.c - serves reads of a large File, which the program has opened at the origin, from
 * a Replica that may still fill.
 *
 * Only hints are kept between two reads: for each, the kernel reports the target of the descriptor,
 * the Replica is opened by its path, and after the bytes were read it must still be the one that
 * was looked up, and the File not written to.
 */
#include "shim/serving/large_replica.h"
#include "shim/serving/read_through.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "shim/names/mark.h"
#include "shim/base/next.h"
#include "shim/base/process.h"
#include "shim/serving/redirects.h"
#include "shim/base/sys.h"
#include "shim/names/wait.h"

#define READ_BYTES_MAX 0x7ffff000ull /* of one call, read(2) */
#define ASKED_NS 1000000000ull

enum {
    UNUSED = 1,
    UNMAPPED = 2,
};

enum {
    ASKED_READS = 256,
    /* of statx(2): fields that are compared with the Catalog */
    STATX_COMPARED = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_MTIME | STATX_CTIME,
};

enum {
    PIECE_BYTES = 4 << 20, /* of a long read: others are copied meanwhile */
    PIECES_MAX = 32,       /* buffers of one call, on the stack */
    TURNS = 3,             /* at a piece that is given up while it is read */
};

_Atomic uint8_t large_descriptors[DESCRIPTORS_MAX];
atomic_bool large_opened;

/* By number of the descriptor: the File that was opened by its path, plus 1. */
static _Atomic uint32_t noted[DESCRIPTORS_MAX];

/* By number, too: the last time that the client of the origin was asked for its attributes. */
static struct asked {
    uint64_t beat_ns;
    uint32_t reads; /* since then */
} asked[DESCRIPTORS_MAX];

/* By number, too: uses that a counted open has not had yet, UNUSED and UNMAPPED. */
static _Atomic uint8_t awaited[DESCRIPTORS_MAX];

static void remember(int fd, uint8_t what)
{
    atomic_store_explicit(&large_descriptors[fd], what, memory_order_relaxed);
}

/* large_note - stores that this File was opened at the origin. */
void large_note(int fd, uint64_t file)
{
    if (fd < 0 || fd >= DESCRIPTORS_MAX)
        return;
    atomic_store_explicit(&noted[fd], (uint32_t)file + 1, memory_order_relaxed);
    asked[fd] = (struct asked){0};
    atomic_store_explicit(&awaited[fd], 0, memory_order_relaxed);
    remember(fd, DESCRIPTOR_LARGE);
    atomic_store_explicit(&large_opened, true, memory_order_relaxed);
}

/* large_expect - has the first use of a counted open counted, too. An open without one is read
 * outside of the hooks, such as by a stream, or not at all. */
void large_expect(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS_MAX)
        atomic_store_explicit(&awaited[fd], UNUSED | UNMAPPED, memory_order_relaxed);
}

static void count_first(int fd, uint8_t use, enum counter counter)
{
    if (atomic_load_explicit(&awaited[fd], memory_order_relaxed) & use &&
        atomic_fetch_and_explicit(&awaited[fd], (uint8_t)~use, memory_order_relaxed) &
            use)
        count(counter, 1);
}

/* large_mapped - counts the mapping of a descriptor that large_find() knows. */
void large_mapped(int fd)
{
    count_first(fd, UNMAPPED, COUNTER_blocks_mapped);
}

static bool time_is(const struct timespec *t, int64_t ns)
{
    return t->tv_sec * 1000000000ll + t->tv_nsec == ns;
}

/* is_entry - the origin's file matches the Catalog. */
static bool is_entry(const struct stat *st, const struct index *ix,
                     const struct entry *e)
{
    return S_ISREG(st->st_mode) && st->st_ino == e->ino &&
           st->st_dev == index_attr(ix, e)->dev && (uint64_t)st->st_size == e->size &&
           time_is(&st->st_mtim, e->mtime_ns) && time_is(&st->st_ctim, e->ctime_ns);
}

/* take - finds the File of a root by its number there; false: it does not match `st`, or must not
 * be served. */
static bool take(struct large *l, uint32_t root, uint32_t number, const struct stat *st)
{
    const struct root *at = &l->seg->catalog->roots[root];
    l->root = root;
    l->ix = segments_index(l->seg, root);
    if (number >= l->ix->file_count)
        return false;
    l->entry = index_first(l->ix, number);
    l->file = (uint64_t)at->file_base + number;
    l->size = l->entry->size;
    int64_t large = presence_find(l->seg->flags, l->file);
    l->large = (uint32_t)large;
    return large >= 0 && is_entry(st, l->ix, l->entry) &&
           !mark_seen(l->seg, root, l->ix, l->entry);
}

/* find_noted - finds the File that was opened by its path under this number. */
static bool find_noted(struct large *l, int fd, const struct stat *st)
{
    uint32_t file = atomic_load_explicit(&noted[fd], memory_order_relaxed) - 1,
             root = 0;
    bool found = file != NONE32 && catalog_entry(l->seg->catalog, file, &root) &&
                 take(l, root, file - l->seg->catalog->roots[root].file_base, st);
    if (found)
        count_first(fd, UNUSED, COUNTER_blocks_used);
    return found;
}

/* find_known - finds the File with this inode, for a descriptor that was received in another way.
 * Unstable inode numbers prove nothing. */
static bool find_known(struct large *l, const struct stat *st)
{
    const struct catalog *c = l->seg->catalog;
    for (uint32_t root = 0; root < c->root_count; root++) {
        const struct index *ix = segments_index(l->seg, root);
        int64_t found = c->roots[root].unstable
                            ? -1
                            : index_find_inode(ix, st->st_dev, st->st_ino);
        if (found >= 0 && S_ISREG(st->st_mode) &&
            take(l, root, index_entry(ix, (uint32_t)found)->file, st))
            return true;
    }
    return false;
}

/* readable - plain reads by this descriptor are permitted, and may have any alignment. */
static bool readable(int fd)
{
    long flags = sys_call(SYS_fcntl, fd, F_GETFL, 0, 0, 0);
    return flags >= 0 && (flags & O_ACCMODE) == O_RDONLY &&
           !(flags & (O_DIRECT | O_PATH));
}

/* is_due - the client of the origin must be asked again whether the File has changed: after a
 * second by the agent's heartbeat, which costs no system call, or after some reads. */
static bool is_due(const struct segments *seg, int fd)
{
    uint64_t beat = atomic_load_explicit(
        (_Atomic uint64_t *)&seg->requests->heartbeat_ns, memory_order_relaxed);
    struct asked *a = &asked[fd];
    if (beat - a->beat_ns < ASKED_NS && ++a->reads % ASKED_READS)
        return false;
    *a = (struct asked){.beat_ns = beat};
    return true;
}

/* stat_of - fills in the metadata of the descriptor's target, as the kernel knows it. The identity
 * is always exact; for the rest, a network file system may have to ask its server, which it does
 * once in a while as it would for the program. */
static bool stat_of(const struct segments *seg, int fd, struct stat *out)
{
    struct statx st;
    if (is_due(seg, fd) ||
        sys_call(SYS_statx, fd, (long)"", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                 STATX_COMPARED, (long)&st))
        return sys_fstat(fd, out) == 0;
    *out = (struct stat){
        .st_dev = makedev(st.stx_dev_major, st.stx_dev_minor),
        .st_ino = st.stx_ino,
        .st_mode = st.stx_mode,
        .st_size = (off_t)st.stx_size,
        .st_mtim = {st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec},
        .st_ctim = {st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec},
    };
    return true;
}

/* large_find - finds the large File that a descriptor leads to; false: it is none, or its bytes are
 * the origin's. */
bool large_find(int fd, struct large *out)
{
    struct stat st;
    out->seg = attach_for_serving();
    return out->seg && stat_of(out->seg, fd, &st) && readable(fd) &&
           (find_noted(out, fd, &st) || find_known(out, &st));
}

/* ---- one piece ---------------------------------------------------------------------- */

static bool read_replica(const struct large *l, const struct replica *r,
                         const struct iovec *pieces, int count, uint64_t at, uint64_t n)
{
    uint32_t extent = (uint32_t)(at / EXTENT_BYTES);
    int fd = replica_open(l, r->place, extent);
    if (fd < 0)
        return false;
    uint64_t from = r->place & PLACE_FILE ? at % EXTENT_BYTES : at;
    long got = count == 1
                   ? sys_call(SYS_pread64, fd, (long)pieces->iov_base, (long)n,
                              (long)from, 0)
                   : sys_call(SYS_preadv, fd, (long)pieces, count, (long)from, 0);
    sys_close(fd);
    return got == (long)n && replica_still(l, r);
}

/* serve_piece - serves a piece; false: the origin must answer. One that was given up or became
 * READY while it was read is looked up again. */
static bool serve_piece(const struct large *l, const struct iovec *pieces, int count,
                        uint64_t at, uint64_t n)
{
    struct replica r;
    uint32_t first = (uint32_t)(at / PAGE_BYTES);
    struct page_range range = {l->large, first, pages_of(at + n) - first};
    for (int turn = 0; turn < TURNS; turn++) {
        if (!replica_await(l, &range, &r))
            return false;
        if (read_replica(l, &r, pieces, count, at, n))
            return true;
        if (!r.pieces && !replica_ready(l))
            return false;
    }
    return false;
}

/* ---- one read ------------------------------------------------------------------------ */

/* piece_bytes - returns the bytes of the next piece of a range: a piece ends with its Extent. */
static uint64_t piece_bytes(uint64_t at, uint64_t n)
{
    uint64_t room = EXTENT_BYTES - at % EXTENT_BYTES;
    room = room < PIECE_BYTES ? room : PIECE_BYTES;
    return n < room ? n : room;
}

/* serve - serves a range within the File from a Replica, by pieces; returns the served bytes. */
static uint64_t serve(const struct large *l, const struct iovec *pieces, int count,
                      uint64_t at, uint64_t n)
{
    uint64_t done = 0;
    if (count > 1)
        return serve_piece(l, pieces, count, at, n) ? n : 0;
    while (done < n) {
        uint64_t piece = piece_bytes(at + done, n - done);
        struct iovec part = {(char *)pieces->iov_base + done, piece};
        if (!serve_piece(l, &part, 1, at + done, piece))
            break;
        done += piece;
    }
    return done;
}

/* total_of - returns the bytes that a call requests; 0: none, or it is left to the kernel. */
static uint64_t total_of(const struct iovec *pieces, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += pieces[i].iov_len;
        if (pieces[i].iov_len > READ_BYTES_MAX || sum > READ_BYTES_MAX)
            return 0;
    }
    return sum;
}

static void counted_read(uint64_t n, uint64_t served)
{
    count(served ? COUNTER_reads_local : COUNTER_reads_origin, 1);
    count(COUNTER_bytes_local, served);
    if (served < n)
        count(COUNTER_bytes_read_origin, n - served);
}

/* read_rest - reads the bytes that no Replica has from the origin. */
static long read_rest(int fd, const struct iovec *pieces, int count, uint64_t at,
                      uint64_t n, uint64_t served)
{
    if (count > 1) /* all or nothing is served of it */
        return sys_call(SYS_preadv, fd, (long)pieces, count, (long)at, 0);
    return sys_call(SYS_pread64, fd, (long)pieces->iov_base + (long)served,
                    (long)(n - served), (long)(at + served), 0);
}

/* serve_shared - serves a read at the offset of the descriptor, which others may share: one step of
 * it claims the range, and another returns the excess. */
static bool serve_shared(int fd, const struct large *l, const struct iovec *pieces,
                         int count, ssize_t *got)
{
    uint64_t total = total_of(pieces, count);
    long end = sys_call(SYS_lseek, fd, (long)total, SEEK_CUR, 0, 0);
    if (end < 0)
        return false;
    uint64_t at = (uint64_t)end - total;
    if (at >= l->size) {
        sys_call(SYS_lseek, fd, -(long)total, SEEK_CUR, 0, 0);
        return false;
    }
    uint64_t n = l->size - at < total ? l->size - at : total;
    bool through = through_applies(l, fd, at, n);
    uint64_t served = through ? 0 : serve(l, pieces, count, at, n);
    counted_read(n, served);
    long rest = through      ? through_read(l, fd, pieces, count, at, n)
                : served < n ? read_rest(fd, pieces, count, at, n, served)
                             : 0;
    long all = rest < 0 && !served ? rest : (long)served + (rest > 0 ? rest : 0);
    if (all < (long)total)
        sys_call(SYS_lseek, fd, (all > 0 ? all : 0) - (long)total, SEEK_CUR, 0, 0);
    if (all < 0)
        errno = (int)-all;
    *got = all < 0 ? -1 : all;
    read_ahead(fd, l, at, n);
    return true;
}

static bool serve_at(int fd, const struct large *l, const struct iovec *pieces,
                     int count, off64_t at, ssize_t *got)
{
    uint64_t total = total_of(pieces, count);
    if (at < 0 || (uint64_t)at >= l->size)
        return false;
    uint64_t n = l->size - (uint64_t)at < total ? l->size - (uint64_t)at : total;
    if (through_applies(l, fd, (uint64_t)at, n)) {
        long all = through_read(l, fd, pieces, count, (uint64_t)at, n);
        counted_read(n, 0);
        read_ahead(fd, l, (uint64_t)at, n);
        *got = all;
        return all >= 0; /* an error is left to the program's own call */
    }
    uint64_t served = serve(l, pieces, count, (uint64_t)at, n);
    counted_read(n, served);
    read_ahead(fd, l, (uint64_t)at, n);
    if (!served)
        return false;
    long rest = served < n ? read_rest(fd, pieces, count, (uint64_t)at, n, served) : 0;
    *got = (ssize_t)served + (rest > 0 ? rest : 0);
    return true;
}

/* large_serve - serves a read, at an offset of its own or (NULL) at that of the descriptor; true:
 * `got` and errno are its result. */
bool large_serve(int fd, const struct iovec *pieces, int count, const off64_t *at,
                 ssize_t *got)
{
    struct large l;
    if (!large_find(fd, &l)) {
        remember(fd, DESCRIPTOR_OTHER);
        return false;
    }
    if (!total_of(pieces, count))
        return false;
    next_testcancel(); /* a cancellation point, as the read that it replaces */
    return at ? serve_at(fd, &l, pieces, count, *at, got)
              : serve_shared(fd, &l, pieces, count, got);
}

/* large_serve_pieces - does the same into several buffers. The kernel copies the program's list,
 * and reports a bad address without a signal. */
bool large_serve_pieces(int fd, const struct iovec *pieces, int count,
                        const off64_t *at, ssize_t *got)
{
    struct iovec copies[PIECES_MAX];
    if (count <= 0 || count > PIECES_MAX)
        return false;
    size_t bytes = (size_t)count * sizeof(*pieces);
    const struct iovec from = {(void *)(uintptr_t)pieces, bytes}, to = {copies, bytes};
    long copied = sys_call(SYS_process_vm_readv, sys_getpid(), (long)&to, 1,
                           (long)&from, 1);
    return copied == (long)bytes && large_serve(fd, copies, count, at, got);
}
