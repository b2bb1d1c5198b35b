/* segments.c - maps the segments of a run directory, if they are whole and of one agent. */
#include "segments.h"

#include <string.h>
#include <sys/mman.h>

#include "scratch.h"
#include "sys.h"

/* segments_path - writes the path of a file in the run directory. One descriptor at a time
 * must do: the program may have no more. */
const char *segments_path(const struct board *b, const char *name,
                          char out[PATH_BYTES_MAX])
{
    size_t n = strlen(name);
    if (b->run_bytes + 1 + n >= PATH_BYTES_MAX)
        return "";
    memcpy(out, b->run, b->run_bytes);
    out[b->run_bytes] = '/';
    memcpy(out + b->run_bytes + 1, name, n + 1);
    return out;
}

/* map_segment - maps one file of the run directory; NULL unless it is a whole segment
 * of this layout that belongs to us. */
static void *map_segment(const struct board *b, const char *name, uint32_t kind,
                         bool writable)
{
    SCRATCH(path);
    int fd = path ? sys_openat(AT_FDCWD, segments_path(b, name, path),
                               (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC)
                  : -1;
    if (fd < 0)
        return NULL;
    struct stat st;
    struct segment *seg = NULL;
    if (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == sys_geteuid() &&
        (st.st_mode & 0077) == 0 && (size_t)st.st_size >= sizeof(*seg)) {
        long at = sys_call(SYS_mmap, 0, st.st_size,
                           writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                           fd);
        if (at > 0 || at < -4095)
            seg = (struct segment *)at;
    }
    sys_close(fd);
    if (seg && (memcmp(seg->magic, "MONARCH", 8) != 0 || seg->kind != kind ||
                seg->version != LAYOUT_VERSION || seg->length != (size_t)st.st_size)) {
        sys_call(SYS_munmap, (long)seg, st.st_size, 0, 0, 0);
        seg = NULL;
    }
    return seg;
}

static void unmap(const void *segment)
{
    if (segment)
        sys_call(SYS_munmap, (long)segment,
                 (long)((const struct segment *)segment)->length, 0, 0, 0);
}

/* segments_unmap - forgets those that are mapped. */
void segments_unmap(struct board *b)
{
    unmap(b->catalog);
    unmap(b->flags);
    unmap(b->requests);
    unmap(b->counters);
    unmap(b->inodes);
}

static bool roots_valid(const struct catalog *c)
{
    for (uint32_t i = 0; i < c->root_count; i++) {
        if (c->roots[i].block > c->seg.length - sizeof(struct index))
            return false;
        const struct index *ix = (const struct index *)((const char *)c +
                                                        c->roots[i].block);
        if (ix->seg.kind != SEGMENT_INDEX || ix->seg.version != LAYOUT_VERSION ||
            ix->seg.length > c->seg.length - c->roots[i].block)
            return false;
    }
    for (uint32_t i = 0; i < c->tier_count; i++)
        if (c->tiers[i].path_bytes >= TIER_PATH_MAX)
            return false;
    return true;
}

static bool generation_same(const struct board *b)
{
    uint64_t g = b->catalog->seg.generation;
    return b->flags->seg.generation == g && b->requests->seg.generation == g &&
           b->counters->seg.generation == g && b->inodes->seg.generation == g;
}

static bool catalog_valid(const struct board *b)
{
    const struct catalog *c = b->catalog;
    return c->seg.length >= sizeof(*c) && b->flags->seg.length >= sizeof(*b->flags) &&
           b->requests->seg.length >= sizeof(*b->requests) &&
           b->counters->seg.length >= sizeof(*b->counters) &&
           b->inodes->seg.length >= sizeof(*b->inodes) && c->root_count <= ROOTS_MAX &&
           c->tier_count <= TIERS_MAX && c->filter_count <= FILTER_NAMES_MAX &&
           c->prefix_count <= PREFIXES_MAX && c->prefixes < c->seg.length &&
           c->states < c->seg.length && c->strings <= c->seg.length &&
           b->flags->count <= b->flags->seg.length - sizeof(*b->flags) &&
           c->file_count + c->dir_count <= b->flags->count && roots_valid(c);
}

/* segments_order - reads the prefixes, longest first, so that the first match is
 * the one that counts. */
void segments_order(struct board *b)
{
    const struct catalog *c = b->catalog;
    const struct prefix *from = (const struct prefix *)((const char *)c + c->prefixes);
    b->spelling_count = c->prefix_count;
    for (uint32_t i = 0; i < c->prefix_count; i++) {
        struct spelling s = {
            .path = (const char *)c + c->strings + (from[i].path >> 16),
            .bytes = (uint32_t)(from[i].path & 0xffff),
            .root = from[i].root,
        };
        uint32_t at = i;
        for (; at > 0 && b->spellings[at - 1].bytes < s.bytes; at--)
            b->spellings[at] = b->spellings[at - 1];
        b->spellings[at] = s;
    }
}

/* segments_map - maps all of them, whole and of one agent; false: it has mapped none. */
bool segments_map(struct board *b)
{
    SCRATCH(path);
    b->catalog = map_segment(b, "catalog", SEGMENT_CATALOG, false);
    if (!b->catalog) /* it comes last: there is no agent, or not yet */
        return false;
    b->flags = map_segment(b, "flags", SEGMENT_FLAGS, true);
    b->requests = map_segment(b, "requests", SEGMENT_REQUESTS, true);
    b->counters = map_segment(b, "counters", SEGMENT_COUNTERS, true);
    b->inodes = map_segment(b, "inodes", SEGMENT_INODES, false);
    if (path && b->flags && b->requests && b->counters && b->inodes &&
        generation_same(b) && catalog_valid(b) && !board_superseded(b)) {
        segments_order(b);
        struct stat st;
        b->injects = sys_stat(AT_FDCWD, segments_path(b, "shim.so", path), &st, 0) == 0;
        return true;
    }
    segments_unmap(b);
    return false;
}
