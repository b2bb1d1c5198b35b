/* streams.c - directory streams: opened, rewound and closed by libc, and read from the Catalog if
 * that has all names. A stream stays libc's own, unread, on its real descriptor.
 *
 * The state of a stream is found by its address and begins when it is opened or rewound. The first
 * use after that decides whether the Catalog answers, for all names up to the end, so that no name
 * is repeated or missing. The address is a hint: before each name, the descriptor must be that of
 * the directory. */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "shim/names/directories.h"
#include "shim/base/next.h"
#include "shim/base/object.h"
#include "shim/base/process.h"
#include "shim/base/sys.h"

enum {
    BUCKETS = 32,
    WAYS = 8, /* addresses in one cache line */
};

/* Places in a stream, as telldir() returns them: the dots, then those of the names in the arena,
 * counted from the first one. */
enum { PLACE_SELF, PLACE_PARENT, PLACE_NAMES };

struct stream {
    struct directory at;
    _Atomic uint64_t place;
    _Atomic bool answered; /* from the Catalog; else that is not decided yet */
    struct dirent entry;
};

static struct {
    _Alignas(64) _Atomic uintptr_t streams[WAYS];
} addresses[BUCKETS];

static struct stream kept[BUCKETS][WAYS];
static _Atomic uint32_t used;

static uint32_t bucket_of(uintptr_t address)
{
    return (uint32_t)((address >> 4) * 0x9e3779b97f4a7c15u >> 32) % BUCKETS;
}

/* find - returns the state of a stream, and the place of its address; NULL: none. */
static struct stream *find(DIR *dir, _Atomic uintptr_t **address)
{
    uintptr_t wanted = (uintptr_t)dir;
    if (!atomic_load_explicit(&used, memory_order_relaxed) || !wanted)
        return NULL;
    uint32_t bucket = bucket_of(wanted);
    for (int way = 0; way < WAYS; way++) {
        _Atomic uintptr_t *at = &addresses[bucket].streams[way];
        if (atomic_load_explicit(at, memory_order_acquire) == wanted) {
            *address = at;
            return &kept[bucket][way];
        }
    }
    return NULL;
}

/* forget - drops the state of a stream that is read from the origin from now on, or closed. */
static void forget(DIR *dir)
{
    _Atomic uintptr_t *address;
    uintptr_t expected = (uintptr_t)dir;
    if (find(dir, &address) && atomic_compare_exchange_strong(address, &expected, 0))
        atomic_fetch_sub_explicit(&used, 1, memory_order_relaxed);
}

/* take - creates the state of a stream that no other thread knows yet; NULL: no room. */
static struct stream *take(DIR *dir, const struct directory *at)
{
    uint32_t bucket = bucket_of((uintptr_t)dir);
    for (int way = 0; way < WAYS; way++) {
        uintptr_t expected = 0;
        struct stream *s = &kept[bucket][way];
        if (!atomic_compare_exchange_strong(&addresses[bucket].streams[way], &expected,
                                            (uintptr_t)dir))
            continue;
        s->at = *at;
        atomic_store(&s->place, PLACE_SELF);
        atomic_store(&s->answered, false);
        atomic_fetch_add_explicit(&used, 1, memory_order_release);
        return s;
    }
    return NULL;
}

/* begin - prepares an opened or rewound stream to be answered from the Catalog. One that was closed
 * unseen may have had the same address. */
static DIR *begin(DIR *dir)
{
    const struct segments *seg = dir ? attach_for_serving() : NULL;
    struct directory at;
    forget(dir);
    if (seg && directory_of(seg, dirfd(dir), &at) && index_listed(at.ix, at.entry))
        take(dir, &at);
    return dir;
}

/* decide - the Catalog answers for the whole stream; a descriptor that was read from begins
 * elsewhere. */
static bool decide(struct stream *s, int fd)
{
    if (sys_call(SYS_lseek, fd, 0, SEEK_CUR, 0, 0) != 0 ||
        !directory_current(&s->at, fd))
        return false;
    atomic_store_explicit(&s->answered, true, memory_order_relaxed);
    count(COUNTER_listings_answered, 1);
    return true;
}

/* answered - returns the state of a stream that the Catalog answers for; NULL: libc reads it. */
static struct stream *answered(DIR *dir)
{
    _Atomic uintptr_t *address;
    struct stream *s = find(dir, &address);
    if (__builtin_expect(!s, 1) ||
        atomic_load_explicit(&s->answered, memory_order_relaxed) ||
        decide(s, dirfd(dir)))
        return s;
    forget(dir);
    return NULL;
}

/* parent_inode - returns the inode of "..", which need not be catalogued. */
static uint64_t parent_inode(const struct directory *at, int fd)
{
    struct stat st;
    const struct entry *e = index_entry(at->ix, at->entry);
    bool told = object_at(fd, "..", true, &st) &&
                st.st_dev == index_attr(at->ix, e)->dev;
    return told ? st.st_ino : e->ino; /* the root of a file system is its own parent */
}

/* describe - writes one name, as readdir() returns it. */
static void describe(struct dirent *out, const char *name, size_t n, uint64_t ino,
                     uint32_t mode, uint64_t next)
{
    size_t bytes = offsetof(struct dirent, d_name) + n + 1;
    out->d_ino = ino;
    out->d_off = (off_t)next;
    out->d_reclen = (unsigned short)((bytes + 7) & ~(size_t)7);
    out->d_type = IFTODT(mode);
    memcpy(out->d_name, name, n);
    out->d_name[n] = 0;
}

/* put_name - writes the name at a place, and returns the next place; 0: no such name. */
static uint64_t put_name(const struct stream *s, int fd, uint64_t place,
                         struct dirent *out)
{
    const struct directory *at = &s->at;
    const struct entry *own = index_entry(at->ix, at->entry);
    if (place < PLACE_NAMES) {
        bool parent = place == PLACE_PARENT;
        uint64_t ino = parent ? parent_inode(at, fd) : own->ino;
        describe(out, "..", 1 + parent, ino, S_IFDIR, place + 1);
        return place + 1;
    }
    uint64_t next = place - PLACE_NAMES;
    uint32_t child = index_listed_at(at->ix, at->entry, &next);
    if (child == NONE32)
        return 0;
    const struct entry *e = index_entry(at->ix, child);
    size_t head = index_path_bytes(own) ? index_path_bytes(own) + 1 : 0;
    describe(out, index_path(at->ix, e) + head, index_path_bytes(e) - head, e->ino,
             index_attr(at->ix, e)->mode, next + PLACE_NAMES);
    return next + PLACE_NAMES;
}

/* read_on - writes the next name; false: none, or `gone`: the descriptor leads elsewhere by now,
 * and libc must read it. Threads that share the stream read one name each. */
static bool read_on(struct stream *s, DIR *dir, struct dirent *out, bool *gone)
{
    int fd = dirfd(dir);
    uint64_t place = atomic_load_explicit(&s->place, memory_order_relaxed), next;
    *gone = !directory_holds(&s->at, fd);
    if (*gone) {
        forget(dir);
        return false;
    }
    do {
        next = put_name(s, fd, place, out);
    } while (next && !atomic_compare_exchange_weak_explicit(&s->place, &place, next,
                                                            memory_order_relaxed,
                                                            memory_order_relaxed));
    return next != 0;
}

DIR *opendir(const char *path)
{
    directory_prepare(attach_for_serving(), AT_FDCWD, path);
    return begin(NEXT(opendir)(path));
}

DIR *fdopendir(int fd)
{
    return begin(NEXT(fdopendir)(fd));
}

int closedir(DIR *dir)
{
    forget(dir);
    return NEXT(closedir)(dir);
}

void rewinddir(DIR *dir)
{
    NEXT(rewinddir)(dir);
    begin(dir);
}

/* What both names of readdir() do. */
#define READ(call)                              \
    struct stream *s = answered(dir);           \
    bool gone = true;                           \
    if (s && read_on(s, dir, &s->entry, &gone)) \
        return (void *)&s->entry;               \
    return gone ? (call) : NULL;

struct dirent *readdir(DIR *dir)
{
    READ(NEXT(readdir)(dir))
}

struct dirent64 *readdir64(DIR *dir)
{
    READ(NEXT(readdir64)(dir))
}

/* What both names of readdir_r() do. */
#define READ_INTO(out, result, call)                                  \
    struct stream *s = answered(dir);                                 \
    bool gone = true;                                                 \
    bool found = s && read_on(s, dir, (struct dirent *)(out), &gone); \
    if (!found && gone)                                               \
        return (call);                                                \
    *(result) = found ? (out) : NULL;                                 \
    return 0;

int readdir_r(DIR *dir, struct dirent *out, struct dirent **result)
{
    READ_INTO(out, result, NEXT(readdir_r)(dir, out, result))
}

int readdir64_r(DIR *dir, struct dirent64 *out, struct dirent64 **result)
{
    READ_INTO(out, result, NEXT(readdir64_r)(dir, out, result))
}

long telldir(DIR *dir)
{
    struct stream *s = answered(dir);
    return s ? (long)atomic_load_explicit(&s->place, memory_order_relaxed)
             : NEXT(telldir)(dir);
}

void seekdir(DIR *dir, long place)
{
    struct stream *s = answered(dir);
    if (!s)
        NEXT(seekdir)(dir, place);
    else
        atomic_store_explicit(&s->place, (uint64_t)place, memory_order_relaxed);
}
