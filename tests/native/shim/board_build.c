/* board_build.c - walks a directory and lays out its segments, as an agent would. */
#include "board_build.h"

#include <err.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../segment_builder.h"
#include "shared/mountinfo.h"
#include "shared/catalog.h"
#include "shared/changes.h"
#include "shared/replica_table.h"
#include "shared/rights.h"

enum { ATTRS_MAX = 4096 };

struct item { /* one name, before the Entries are sorted */
    char *rel;
    struct stat st;
    long target;    /* item that a link resolves to, -1: none */
    long number;    /* File or directory number */
    size_t seen;    /* number of names seen before */
    uint64_t place; /* in the arena */
    uint64_t names; /* of a directory: where they begin there */
};

struct items {
    struct item *all;
    size_t count, room, files, dirs, bytes;
};

static void add(struct items *items, const char *rel, const struct stat *st)
{
    if (items->count == items->room) {
        items->room = items->room ? 2 * items->room : 1024;
        items->all = realloc(items->all, items->room * sizeof(*items->all));
        if (!items->all)
            err(1, "realloc");
    }
    items->all[items->count++] = (struct item){
        .rel = strdup(rel), .st = *st, .target = -1, .number = NONE32};
    items->all[items->count - 1].seen = items->count;
    items->bytes += strlen(rel) + 1;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->rel, ((const struct item *)b)->rel);
}

static void walk(const struct plan *plan, struct items *items)
{
    char *const roots[] = {(char *)(uintptr_t)plan->root, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    size_t skip = strlen(plan->root);
    if (!fts)
        err(1, "%s", plan->root);
    for (FTSENT *f = fts_read(fts); f; f = fts_read(fts))
        if (f->fts_info != FTS_DP && !(plan->outline && f->fts_level > 0))
            add(items, f->fts_path + skip + (f->fts_path[skip] == '/'), f->fts_statp);
    fts_close(fts);
    if (plan->outline)
        return;
    struct stat st = items->all[0].st;
    st.st_mode = S_IFREG | 0644;
    for (unsigned i = 0; i < plan->padding; i++) {
        char rel[128];
        snprintf(rel, sizeof(rel), "train/class-%04u/padding-of-the-catalog-%08u.bin",
                 i % 1000, i);
        add(items, rel, &st);
    }
    qsort(items->all, items->count, sizeof(*items->all), by_path);
}

static struct item *named(struct items *items, const char *rel)
{
    struct item key = {.rel = (char *)(uintptr_t)rel};
    return bsearch(&key, items->all, items->count, sizeof(key), by_path);
}

/* resolve - links that stay below the root lead to an Entry. */
static void resolve(const struct plan *plan, struct items *items)
{
    size_t skip = strlen(plan->root);
    for (size_t i = 0; i < items->count; i++) {
        char path[PATH_MAX], real[PATH_MAX];
        if (!S_ISLNK(items->all[i].st.st_mode))
            continue;
        snprintf(path, sizeof(path), "%s/%s", plan->root, items->all[i].rel);
        if (!realpath(path, real) || strncmp(real, plan->root, skip) != 0 ||
            (real[skip] && real[skip] != '/'))
            continue;
        struct item *to = named(items, real[skip] ? real + skip + 1 : "");
        items->all[i].target = to ? to - items->all : -1;
    }
}

/* number - hard links share the number of their first name. */
static void number(struct items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        struct item *it = &items->all[i];
        if (S_ISDIR(it->st.st_mode))
            it->number = (long)items->dirs++;
        if (!S_ISREG(it->st.st_mode))
            continue;
        size_t k = it->st.st_nlink > 1 && it->rel[0] ? 0 : i;
        while (k < i && (items->all[k].st.st_ino != it->st.st_ino ||
                         !S_ISREG(items->all[k].st.st_mode)))
            k++;
        it->number = k < i ? items->all[k].number : (long)items->files++;
    }
    for (size_t i = 0; i < items->count; i++)
        if (items->all[i].target >= 0)
            items->all[i].number = items->all[items->all[i].target].number;
}

static size_t holder_bytes(const struct item *it)
{
    const char *slash = strrchr(it->rel, '/');
    return slash ? (size_t)(slash - it->rel) : 0;
}

/* by_listing - the root, then directory by directory, in the order of discovery. */
static int by_listing(const void *a, const void *b)
{
    const struct item *one = *(struct item *const *)a, *two = *(struct item *const *)b;
    size_t n = holder_bytes(one), m = holder_bytes(two);
    int order = memcmp(one->rel, two->rel, n < m ? n : m);
    if (!one->rel[0] || !two->rel[0])
        return (one->rel[0] != 0) - (two->rel[0] != 0);
    if (order || n != m)
        return order ? order : n < m ? -1 : 1;
    return one->seen < two->seen ? -1 : 1;
}

/* place_paths - assigns each path its place in the arena. */
static void place_paths(struct items *items)
{
    struct item **order = malloc(items->count * sizeof(*order));
    uint64_t at = 0;
    if (!order)
        err(1, "malloc");
    for (size_t i = 0; i < items->count; i++) {
        order[i] = &items->all[i];
        items->all[i].names = items->bytes;
    }
    qsort(order, items->count, sizeof(struct item *), by_listing);
    for (size_t i = 0; i < items->count; i++) {
        size_t n = holder_bytes(order[i]);
        char holder[PATH_MAX];
        snprintf(holder, sizeof(holder), "%.*s", (int)n, order[i]->rel);
        struct item *in = order[i]->rel[0] ? named(items, holder) : NULL;
        if (in && in->names == items->bytes)
            in->names = at;
        order[i]->place = at;
        at += strlen(order[i]->rel) + 1;
    }
    free(order);
}

/* target_of - the target of an Entry. */
static uint32_t target_of(const struct plan *plan, const struct item *it, uint32_t own)
{
    if (S_ISLNK(it->st.st_mode))
        return (uint32_t)it->target;
    if (!S_ISDIR(it->st.st_mode))
        return own;
    return plan->partial && strcmp(it->rel, plan->partial) == 0 ? NONE32
                                                                : (uint32_t)it->names;
}

static void *segment(const struct plan *plan, const char *name, enum segment_kind kind,
                     size_t bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", plan->run, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        err(1, "%s", path);
    struct segment *seg = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED)
        err(1, "mmap %s", path);
    close(fd);
    *seg = segment_head(kind, bytes);
    return seg;
}

static uint32_t attr_of(struct index *ix, const struct stat *st)
{
    struct attr *attrs = (struct attr *)((char *)ix + ix->attrs);
    const struct attr a = {st->st_mode,
                           st->st_uid,
                           st->st_gid,
                           (uint32_t)st->st_nlink,
                           st->st_dev,
                           (uint32_t)st->st_blksize,
                           1};
    for (uint32_t i = 0; i < ix->attr_count; i++)
        if (memcmp(&attrs[i], &a, sizeof(a)) == 0)
            return i;
    if (ix->attr_count == ATTRS_MAX)
        errx(1, "too many attrs");
    attrs[ix->attr_count] = a;
    return ix->attr_count++;
}

static size_t place_arrays(struct index *ix, const struct items *items)
{
    struct rights mine;
    rights_read(&mine);
    *ix = (struct index){
        .entry_count = (uint32_t)items->count,
        .name_count = (uint32_t)items->count,
        .file_count = (uint32_t)items->files,
        .dir_count = (uint32_t)items->dirs,
        .slot_count = (uint32_t)(items->count * 2 + 1),
        .inode_slot_count = (uint32_t)(items->count * 5 / 3 + 1),
        .scan_euid = geteuid(),
        .scan_rights = rights_mark(&mine),
        .arena_bytes = items->bytes,
        .attr_count = ATTRS_MAX,
    };
    size_t bytes = index_place(ix);
    ix->attr_count = 0;
    return bytes;
}

static void fill_index(const struct plan *plan, struct index *ix,
                       const struct items *items)
{
    struct entry *entries = (struct entry *)((char *)ix + ix->entries);
    uint32_t *first = (uint32_t *)((char *)ix + ix->first_entry);
    memset(first, 0xff, ix->file_count * sizeof(*first));
    for (uint32_t i = 0; i < ix->entry_count; i++) {
        const struct item *it = &items->all[i];
        size_t n = strlen(it->rel);
        memcpy((char *)ix + ix->arena + it->place, it->rel, n + 1);
        entries[i] = (struct entry){
            .path = it->place << 16 | n,
            .file = (uint32_t)it->number,
            .attr = attr_of(ix, &it->st),
            .target = target_of(plan, it, i),
        };
        entry_observe(&entries[i], &it->st);
        if (S_ISREG(it->st.st_mode) && first[it->number] == NONE32)
            first[it->number] = i;
    }
    ix->scanned_ns = plan->settled ? INT64_MAX : 0;
    ix->root_dev = items->all[0].st.st_dev;
    ix->root_ino = items->all[0].st.st_ino;
    int rc = index_finish(ix, ix->seg.length);
    if (rc)
        errx(1, "index_finish: %d", rc);
}

static void fill_strings(const struct plan *plan, struct catalog *c)
{
    struct prefix *prefixes = (struct prefix *)((char *)c + c->prefixes);
    uint64_t at = 0;
    for (unsigned i = 0; i <= plan->spelling_count; i++) {
        const char *path = i == 0 ? plan->root : plan->spellings[i - 1];
        memcpy((char *)c + c->strings + at, path, strlen(path));
        prefixes[i] = (struct prefix){.path = at << 16 | strlen(path)};
        at += strlen(path);
    }
    c->roots[0].path = prefixes[0].path;
    c->roots[0].unstable = plan->unstable;
    c->roots[0].path_hash = index_hash(plan->root, strlen(plan->root));
}

static void fill_catalog(const struct plan *plan, struct catalog *c)
{
    struct stat st;
    if (stat(plan->tier, &st) < 0)
        err(1, "%s", plan->tier);
    c->root_count = 1;
    c->tier_count = !plan->outline;
    c->tiers[0].dev = st.st_dev;
    c->tiers[0].path_bytes = (uint32_t)strlen(plan->tier);
    memcpy(c->tiers[0].path, plan->tier, c->tiers[0].path_bytes + 1);
    c->cold_mode = plan->cold_mode;
    c->cold_wait_max_bytes = plan->wait_max_bytes;
    c->cold_wait_max_whole_bytes = plan->wait_max_whole_bytes;
    c->cold_timeout_ns = plan->timeout_ns;
    if (plan->filter) {
        c->filter_count = 1;
        strncpy(c->filter[0], plan->filter, FILTER_NAME_BYTES - 1);
    }
    c->prefix_count = plan->spelling_count + 1;
    fill_strings(plan, c);
}

/* board_scan - makes the Catalog, with every File absent, or the outline of one. */
void board_scan(const struct plan *plan, struct built *b)
{
    struct items items = {0};
    struct index shape;
    walk(plan, &items);
    resolve(plan, &items);
    number(&items);
    place_paths(&items);
    size_t block = place_arrays(&shape, &items),
           head = aligned_bytes(sizeof(struct catalog));
    size_t states = head + block, prefixes = aligned_bytes(states + 4 * items.files);
    size_t strings = prefixes + SPELLINGS_MAX * sizeof(struct prefix);
    size_t total = strings + SPELLINGS_MAX * PATH_MAX, marks = items.files + items.dirs;
    size_t flags = aligned_bytes(flags_bytes(marks) + items.files),
           slots = 4 * items.files + 64;
    struct catalog *c;
    if (plan->outline) {
        b->changes = segment(plan, "changes", SEGMENT_FLAGS,
                             flags + sizeof(struct changes));
        b->changes->changes = (uint32_t)flags;
        b->changes->count = marks;
        b->outline = c = segment(plan, "outline", SEGMENT_CATALOG, total);
    } else {
        b->flags = segment(plan, "flags", SEGMENT_FLAGS,
                           flags + items.dirs * sizeof(uint32_t));
        b->flags->count = marks;
        b->flags->whole = flags_bytes(marks);
        b->flags->checked = flags;
        b->inodes = segment(plan, "inodes", SEGMENT_INODES, inodes_bytes(slots));
        b->inodes->slot_count = slots;
        b->catalog = c = segment(plan, "catalog", SEGMENT_CATALOG, total);
        b->index = (struct index *)((char *)c + head);
    }
    struct index *ix = (struct index *)((char *)c + head);
    *ix = shape;
    fill_index(plan, ix, &items);
    c->states = states;
    c->prefixes = prefixes;
    c->strings = strings;
    c->strings_bytes = total - strings;
    c->file_count = items.files;
    c->dir_count = items.dirs;
    c->roots[0] = (struct root){
        .dev = ix->root_dev, .ino = ix->root_ino, .block = head};
    c->roots[0].dir_base = (uint32_t)items.files;
    c->roots[0].provisional = plan->provisional;
    fill_catalog(plan, c);
    struct mountinfo room;
    c->inner_mounts = mountinfo_covers(&room, ix, plan->root, strlen(plan->root));
    for (size_t i = 0; i < items.count; i++)
        free(items.all[i].rel);
    free(items.all);
}

/* board_begin - creates the segments that exist from the start. */
static struct built board_begin(const struct plan *plan)
{
    struct built b = {
        .requests = segment(plan, "requests", SEGMENT_REQUESTS, sizeof(*b.requests)),
        .counters = segment(plan, "counters", SEGMENT_COUNTERS, sizeof(*b.counters)),
    };
    beat(&b);
    b.requests->agent_state = AGENT_SCANNING;
    b.requests->agent_pid = (uint32_t)getpid();
    rights_read(&b.requests->agent);
    rights_locate(&b.requests->agent);
    return b;
}

/* board_serve - lets programs find the Catalog, with all changes made before. */
void board_serve(struct built *b)
{
    atomic_store((_Atomic uint32_t *)&b->requests->catalog, CATALOG_SETTLING);
    if (b->changes)
        changes_apply(b->outline, b->changes, b->catalog, b->flags);
    atomic_store((_Atomic uint32_t *)&b->requests->catalog, CATALOG_SERVED);
    b->requests->agent_state = AGENT_READY;
}

/* board_build - makes all segments; every File is absent. */
struct built board_build(const struct plan *plan)
{
    struct built b = board_begin(plan);
    board_scan(plan, &b);
    if (!plan->outline)
        board_serve(&b);
    return b;
}

void beat(struct built *b)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    b->requests->heartbeat_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void state_set(struct built *b, uint32_t file, uint32_t word)
{
    atomic_store_explicit(replica_word(b->catalog, file), word, memory_order_release);
    syscall(SYS_futex, replica_word(b->catalog, file), FUTEX_WAKE, INT_MAX, NULL);
}

void replica_of(const struct plan *plan, const struct built *b, uint32_t file,
                char *out)
{
    const struct entry *e = index_first(b->index, file);
    int n = sprintf(out, "%s/", plan->tier);
    replica_name(e, b->catalog->roots[0].path_hash,
                 index_hash(index_path(b->index, e), index_path_bytes(e)), out + n);
    out[n + REPLICA_NAME_BYTES] = 0;
}

/* board_publish - copies a File into the Tier and makes it ready. */
void board_publish(const struct plan *plan, struct built *b, uint32_t file)
{
    const struct entry *e = index_first(b->index, file);
    char from[2 * PATH_MAX], to[PATH_MAX], chunk[65536];
    snprintf(from, sizeof(from), "%s/%.*s", plan->root, (int)index_path_bytes(e),
             index_path(b->index, e));
    replica_of(plan, b, file, to);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0) /* an invented Entry */
        return;
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0400);
    struct stat st;
    if (out < 0)
        err(1, "%s", to);
    for (ssize_t n; (n = read(in, chunk, sizeof(chunk))) > 0;)
        if (write(out, chunk, (size_t)n) != n)
            err(1, "write %s", to);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = e->mtime_ns / 1000000000}};
    if (futimens(out, times) < 0 || fstat(out, &st) < 0 ||
        replica_insert(b->inodes, 0, st.st_ino, file) < 0)
        err(1, "publish %s", to);
    close(in);
    close(out);
    state_set(b, file, STATE_WORD(REPLICA_READY, 0, plan->source) | STATE_CONFIRMED);
}
