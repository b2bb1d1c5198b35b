/* segments.c - maps the segments of a run directory, if they are whole and of one agent. */
#include "shim/names/segments.h"

#include <string.h>
#include <sys/mman.h>

#include "shim/base/scratch.h"
#include "shim/base/sys.h"

/* segments_path - writes the path of a file in the run directory. One descriptor at a time must be
 * enough: the program may have no more. */
const char *segments_path(const struct segments *seg, const char *name,
                          char out[PATH_BYTES_MAX])
{
    size_t n = strlen(name);
    if (seg->run_bytes + 1 + n >= PATH_BYTES_MAX)
        return "";
    memcpy(out, seg->run, seg->run_bytes);
    out[seg->run_bytes] = '/';
    memcpy(out + seg->run_bytes + 1, name, n + 1);
    return out;
}

/* map_segment - maps one file of the run directory; NULL unless it is a whole segment
 * of this layout that belongs to us. */
static void *map_segment(const struct segments *seg, const char *name, uint32_t kind,
                         bool writable)
{
    SCRATCH(path);
    int fd = path ? sys_openat(AT_FDCWD, segments_path(seg, name, path),
                               (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC)
                  : -1;
    if (fd < 0)
        return NULL;
    struct stat st;
    struct segment *head = NULL;
    if (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == sys_geteuid() &&
        (st.st_mode & 0077) == 0 && (size_t)st.st_size >= sizeof(*head)) {
        long at = sys_call(SYS_mmap, 0, st.st_size,
                           writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                           fd);
        if (at > 0 || at < -4095)
            head = (struct segment *)at;
    }
    sys_close(fd);
    if (head &&
        (memcmp(head->magic, "MONARCH", 8) != 0 || head->kind != kind ||
         head->version != LAYOUT_VERSION || head->length != (size_t)st.st_size)) {
        sys_call(SYS_munmap, (long)head, st.st_size, 0, 0, 0);
        head = NULL;
    }
    return head;
}

static void unmap(const void *segment)
{
    if (segment)
        sys_call(SYS_munmap, (long)segment,
                 (long)((const struct segment *)segment)->length, 0, 0, 0);
}

/* segments_unmap - unmaps the mapped segments. */
void segments_unmap(struct segments *seg)
{
    unmap(seg->catalog);
    unmap(seg->flags);
    unmap(seg->requests);
    unmap(seg->counters);
    unmap(seg->inodes);
    seg->catalog = NULL;
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

static bool generation_same(const struct segments *seg)
{
    uint64_t g = seg->catalog->seg.generation;
    return seg->flags->seg.generation == g && seg->requests->seg.generation == g &&
           seg->counters->seg.generation == g &&
           (!seg->inodes || seg->inodes->seg.generation == g);
}

/* marks_valid - a Catalog, or the outline of one, and its flags fit together. */
static bool marks_valid(const struct catalog *c, const struct flags *f)
{
    return c->seg.length >= sizeof(*c) && f->seg.length >= sizeof(*f) &&
           f->seg.generation == c->seg.generation && c->root_count <= ROOTS_MAX &&
           c->tier_count <= TIERS_MAX && c->filter_count <= FILTER_NAMES_MAX &&
           c->prefix_count <= PREFIXES_MAX && c->prefixes < c->seg.length &&
           c->states < c->seg.length && c->strings <= c->seg.length &&
           c->above <= c->seg.length &&
           c->above_count <= (c->seg.length - c->above) / sizeof(struct above) &&
           f->count <= f->seg.length - sizeof(*f) &&
           c->file_count + c->dir_count <= f->count && roots_valid(c);
}

static bool catalog_valid(const struct segments *seg)
{
    return marks_valid(seg->catalog, seg->flags) &&
           seg->requests->seg.length >= sizeof(*seg->requests) &&
           seg->counters->seg.length >= sizeof(*seg->counters) &&
           (!seg->inodes || seg->inodes->seg.length >= sizeof(*seg->inodes));
}

/* segments_order - reads the prefixes, longest first, so that the first match is
 * the one that counts. */
void segments_order(struct segments *seg)
{
    const struct catalog *c = seg->catalog;
    const struct prefix *from = (const struct prefix *)((const char *)c + c->prefixes);
    seg->spelling_count = c->prefix_count;
    for (uint32_t i = 0; i < c->prefix_count; i++) {
        struct spelling s = {
            .path = (const char *)c + c->strings + (from[i].path >> 16),
            .bytes = (uint32_t)(from[i].path & 0xffff),
            .root = from[i].root,
        };
        uint32_t at = i;
        for (; at > 0 && seg->spellings[at - 1].bytes < s.bytes; at--)
            seg->spellings[at] = seg->spellings[at - 1];
        seg->spellings[at] = s;
    }
}

/* map_all - maps the segments beside the Catalog, or its outline; false: they do not fit. */
static bool map_all(struct segments *seg, const char *flags)
{
    SCRATCH(path);
    seg->flags = map_segment(seg, flags, SEGMENT_FLAGS, true);
    seg->requests = map_segment(seg, "requests", SEGMENT_REQUESTS, true);
    seg->counters = map_segment(seg, "counters", SEGMENT_COUNTERS, true);
    if (!path || !seg->flags || !seg->requests || !seg->counters ||
        !generation_same(seg) || !catalog_valid(seg) || segments_superseded(seg))
        return false;
    segments_order(seg);
    seg->leaves = false;
    for (uint32_t i = 0; i < seg->catalog->root_count; i++)
        seg->leaves |= index_leaves(segments_index(seg, i));
    struct stat st;
    seg->injects = sys_stat(AT_FDCWD, segments_path(seg, "shim.so", path), &st, 0) == 0;
    return true;
}

/* segments_map - maps all of them, whole and of one agent; false: it has mapped none. */
bool segments_map(struct segments *seg)
{
    seg->changes = NULL;
    seg->catalog = map_segment(seg, "catalog", SEGMENT_CATALOG, false);
    if (!seg->catalog) /* it is created last: no agent exists, or not yet */
        return false;
    seg->inodes = map_segment(seg, "inodes", SEGMENT_INODES, false);
    if (seg->inodes && map_all(seg, "flags") && segments_catalog(seg) != CATALOG_NONE)
        return true;
    segments_unmap(seg);
    return false;
}

/* segments_map_outline - maps the segments that replace them until the Catalog exists. */
bool segments_map_outline(struct segments *seg)
{
    seg->inodes = NULL;
    seg->catalog = map_segment(seg, "outline", SEGMENT_CATALOG, false);
    if (!seg->catalog)
        return false;
    bool fits = map_all(seg, "changes") && seg->catalog->tier_count == 0;
    seg->changes = fits ? changes_of(seg->flags) : NULL;
    if (!seg->changes)
        segments_unmap(seg);
    return seg->changes != NULL;
}

/* carry - turns the contents of an outline into marks of the Catalog. If that cannot be mapped, the
 * agent does so when it looks again. */
static void carry(const struct segments *outline)
{
    struct catalog *c = map_segment(outline, "catalog", SEGMENT_CATALOG, false);
    struct flags *f = map_segment(outline, "flags", SEGMENT_FLAGS, true);
    if (c && f && marks_valid(c, f) &&
        c->seg.generation == outline->catalog->seg.generation)
        changes_apply(outline->catalog, outline->flags, c, f);
    unmap(c);
    unmap(f);
}

/* segments_settle - completes a mark, which may be in an outline: the Catalog may have been
 * published meanwhile, after the agent has read the marks of the outline; see changes.c. */
void segments_settle(const struct segments *seg)
{
    if (__builtin_expect(!seg->changes, 1))
        return;
    atomic_thread_fence(memory_order_seq_cst);
    if (segments_catalog(seg) != CATALOG_NONE)
        carry(seg);
}
