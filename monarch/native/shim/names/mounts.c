/* mounts.c - compares the files that this process sees at the spellings of the roots with the
 * Catalog: containers and mounts, private or new, may show others. */
#include "shim/names/mounts.h"

#include <string.h>

#include "shared/mountinfo.h"
#include "shim/base/sys.h"

enum { GROUND_BITS = 3, GROUND_MASK = (1 << GROUND_BITS) - 1 };
enum { GROUND_BUSY = GROUND_MASK + 1 }; /* another thread looks; never remembered */

/* known_ground - returns the word of a spelling: number of the last known mount << GROUND_BITS |
 * ground. */
static _Atomic uint32_t *known_ground(const struct segments *seg, uint32_t spelling)
{
    return &((struct segments *)(uintptr_t)seg)->grounds[spelling];
}

/* known_mount - returns the word of a root: number of the last known mount << 32 | the mount that
 * holds it. */
static _Atomic uint64_t *known_mount(const struct segments *seg, uint32_t root)
{
    return &((struct segments *)(uintptr_t)seg)->root_mounts[root];
}

/* Memory for paths, because stacks may be small; a thread that finds it taken does without. */
static struct {
    _Atomic uint32_t taken;
    char real[PATH_BYTES_MAX];
    struct mountinfo info;
} scratch;

static uint32_t generation(const struct segments *seg)
{
    return atomic_load_explicit((_Atomic uint32_t *)&seg->flags->mounts,
                                memory_order_acquire) &
           (UINT32_MAX >> GROUND_BITS);
}

/* mounts_moved - records that this process has mounted or unmounted something. */
void mounts_moved(const struct segments *seg)
{
    if (!seg)
        return;
    atomic_fetch_add_explicit((_Atomic uint32_t *)&seg->flags->mounts, 1,
                              memory_order_release);
    segments_settle(seg);
}

/* find_real - writes the kernel's path of a directory; returns its length, 0: none. */
static size_t find_real(const char *directory, char out[PATH_BYTES_MAX])
{
    char name[FD_NAME_BYTES];
    int fd = sys_openat(AT_FDCWD, directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    sys_fd_name(name, fd);
    long n = sys_readlink(name, out, PATH_BYTES_MAX - 1);
    sys_close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* own_path - returns the agent's path of a root. */
static const char *own_path(const struct segments *seg, uint32_t root, size_t *bytes)
{
    uint64_t path = seg->catalog->roots[root].path;
    *bytes = path & 0xffff;
    return (const char *)seg->catalog + seg->catalog->strings + (path >> 16);
}

/* is_own - the spelling is that path itself, below which the agent has looked. */
static bool is_own(const struct segments *seg, uint32_t root, const char *path,
                   size_t n)
{
    size_t bytes;
    const char *own = own_path(seg, root, &bytes);
    return n == bytes && memcmp(path, own, n) == 0;
}

/* look_below - returns the ground below a root that is the right directory. */
static int look_below(const struct segments *seg, uint32_t root, const char *directory,
                      bool moved)
{
    uint32_t expected = 0;
    if (seg->catalog->inner_mounts && moved) /* one of them may be missing here */
        return GROUND_DOUBTFUL;
    if (!atomic_compare_exchange_strong(&scratch.taken, &expected, 1))
        return GROUND_BUSY;
    size_t n = find_real(directory, scratch.real);
    bool clear = n && ((!moved && is_own(seg, root, scratch.real, n)) ||
                       !mountinfo_covers(&scratch.info, segments_index(seg, root),
                                         scratch.real, n));
    atomic_store_explicit(&scratch.taken, 0, memory_order_release);
    if (clear && moved && index_leaves(segments_index(seg, root)))
        return GROUND_LINKS;
    return clear ? GROUND_SAME : GROUND_DOUBTFUL;
}

static int look(const struct segments *seg, uint32_t spelling, bool moved)
{
    const struct spelling *s = &seg->spellings[spelling];
    const struct root *root = &seg->catalog->roots[s->root];
    char *path = __builtin_alloca(s->bytes + 1);
    struct stat st;
    memcpy(path, s->path, s->bytes);
    path[s->bytes] = 0;
    if (sys_stat(AT_FDCWD, path, &st, 0) < 0)
        return GROUND_UNKNOWN;
    if (st.st_dev != root->dev || st.st_ino != root->ino)
        return GROUND_OTHER;
    if (!moved && is_own(seg, s->root, s->path, s->bytes))
        return GROUND_SAME;
    return look_below(seg, s->root, path, moved);
}

/* mounts_ground - returns where a spelling of a root leads; looks once in each process, and again
 * after each mount in the job. */
enum ground mounts_ground(const struct segments *seg, uint32_t spelling)
{
    uint32_t moves = generation(seg);
    uint32_t known = atomic_load_explicit(known_ground(seg, spelling),
                                          memory_order_relaxed);
    if (__builtin_expect(known >> GROUND_BITS == moves, 1) &&
        (known & GROUND_MASK) != GROUND_UNKNOWN)
        return (enum ground)(known & GROUND_MASK);
    int ground = look(seg, spelling, seg->elsewhere || moves);
    if (ground == GROUND_BUSY)
        return GROUND_DOUBTFUL;
    atomic_store_explicit(known_ground(seg, spelling),
                          moves << GROUND_BITS | (uint32_t)ground,
                          memory_order_relaxed);
    return (enum ground)ground;
}

/* mount_of_root - returns the mount that holds a root, by the agent's path; 0: unknown. */
static uint32_t mount_of_root(const struct segments *seg, uint32_t root, uint32_t moves)
{
    uint64_t known = atomic_load_explicit(known_mount(seg, root), memory_order_relaxed);
    if (__builtin_expect(known >> 32 == moves && (uint32_t)known, 1))
        return (uint32_t)known;
    size_t bytes;
    const char *own = own_path(seg, root, &bytes);
    char *path = __builtin_alloca(bytes + 1);
    memcpy(path, own, bytes);
    path[bytes] = 0;
    uint32_t mount = mountinfo_id(AT_FDCWD, path, 0);
    atomic_store_explicit(known_mount(seg, root), (uint64_t)moves << 32 | mount,
                          memory_order_relaxed);
    return mount;
}

/* own_ground - returns the ground below a root by the agent's path. */
static enum ground own_ground(const struct segments *seg, uint32_t root)
{
    for (uint32_t i = 0; i < seg->spelling_count; i++)
        if (seg->spellings[i].root == root &&
            is_own(seg, root, seg->spellings[i].path, seg->spellings[i].bytes))
            return mounts_ground(seg, i);
    return GROUND_DOUBTFUL;
}

/* mounts_apart - the start of a name or (with "") a descriptor is a directory that is not on the
 * mount of the root: other files may be mounted below. */
bool mounts_apart(const struct segments *seg, uint32_t root, int dirfd,
                  const char *path)
{
    uint32_t moves = generation(seg);
    bool moved = seg->elsewhere || moves;
    if (moved && own_ground(seg, root) != GROUND_SAME)
        return true;
    uint32_t mount = mountinfo_id(dirfd, path, path[0] ? 0 : AT_EMPTY_PATH);
    if (!mount) /* an old kernel has no such field */
        return moved;
    return mount != mount_of_root(seg, root, moves);
}
