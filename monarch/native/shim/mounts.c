/* mounts.c - compares what this process sees at the spellings of the roots with what was
 * catalogued: containers and mounts, private or new, may show something else. */
#include "mounts.h"

#include <string.h>

#include "shared/mountinfo.h"
#include "sys.h"

enum { GROUND_BITS = 2, GROUND_MASK = (1 << GROUND_BITS) - 1 };
enum { GROUND_BUSY = GROUND_MASK + 1 }; /* another thread looks; never remembered */

/* Of each spelling: number of the last mount that was known << GROUND_BITS | ground. */
static _Atomic uint32_t grounds[PREFIXES_MAX];

/* Room for paths that a small stack has not; whoever finds it taken does without. */
static struct {
    _Atomic uint32_t taken;
    char real[PATH_BYTES_MAX];
    struct mountinfo info;
} scratch;

static uint32_t generation(const struct board *b)
{
    return atomic_load_explicit((_Atomic uint32_t *)&b->flags->mounts,
                                memory_order_acquire);
}

/* mounts_moved - this process has mounted or unmounted something. */
void mounts_moved(void)
{
    const struct board *b = board_left();
    if (b)
        atomic_fetch_add_explicit((_Atomic uint32_t *)&b->flags->mounts, 1,
                                  memory_order_release);
}

/* find_real - the path by which the kernel knows a directory; its length, 0: none. */
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

/* look_below - the ground below a root that is the right directory. */
static int look_below(const struct board *b, uint32_t root, const char *directory)
{
    uint32_t expected = 0;
    if (b->catalog->inner_mounts) /* one of them may be missing here */
        return GROUND_DOUBTFUL;
    if (!atomic_compare_exchange_strong(&scratch.taken, &expected, 1))
        return GROUND_BUSY;
    size_t n = find_real(directory, scratch.real);
    bool covered = n == 0 || mountinfo_covers(&scratch.info, board_index(b, root),
                                              scratch.real, n);
    atomic_store_explicit(&scratch.taken, 0, memory_order_release);
    return covered ? GROUND_DOUBTFUL : GROUND_SAME;
}

static int look(const struct board *b, uint32_t spelling, uint32_t moves)
{
    const struct spelling *s = &b->spellings[spelling];
    const struct root *root = &b->catalog->roots[s->root];
    char *path = __builtin_alloca(s->bytes + 1);
    struct stat st;
    memcpy(path, s->path, s->bytes);
    path[s->bytes] = 0;
    if (sys_stat(AT_FDCWD, path, &st, 0) < 0)
        return GROUND_UNKNOWN;
    if (st.st_dev != root->dev || st.st_ino != root->ino)
        return GROUND_OTHER;
    return b->elsewhere || moves ? look_below(b, s->root, path) : GROUND_SAME;
}

/* mounts_ground - looks once in each process, and again after each mount in the job,
 * where a spelling of a root leads; NONE32: a name that begins at a descriptor. */
enum ground mounts_ground(const struct board *b, uint32_t spelling)
{
    uint32_t moves = generation(b) & (UINT32_MAX >> GROUND_BITS);
    if (spelling == NONE32)
        return b->elsewhere || moves ? GROUND_DOUBTFUL : GROUND_SAME;
    uint32_t known = atomic_load_explicit(&grounds[spelling], memory_order_relaxed);
    if (__builtin_expect(known >> GROUND_BITS == moves, 1) &&
        (known & GROUND_MASK) != GROUND_UNKNOWN)
        return (enum ground)(known & GROUND_MASK);
    int ground = look(b, spelling, moves);
    if (ground == GROUND_BUSY)
        return GROUND_DOUBTFUL;
    atomic_store_explicit(&grounds[spelling], moves << GROUND_BITS | (uint32_t)ground,
                          memory_order_relaxed);
    return (enum ground)ground;
}
