/* board.c - a small job for tests. */
#include "board.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../segment_builder.h"
#include "dataplane/api/engine.h"
#include "shared/catalog.h"
#include "shared/presence.h"

enum { PATH_STEP = 16, PATIENCE_MS = 60000, FRAMES = 32 };

const uint8_t board_key[SEAL_KEY_BYTES] = "the secret of a job, by HMAC...";

static void *shared_memory(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

void board_origin_path(const struct board *b, uint32_t file, char out[512])
{
    snprintf(out, 512, "%s/f%04u", b->origin, file);
}

/* board_resize - of a file that its owner may not write; its mode is kept. */
void board_resize(const char *path, off_t bytes)
{
    struct stat st;
    CHECK(stat(path, &st) == 0 && chmod(path, 0600) == 0);
    CHECK(truncate(path, bytes) == 0 && chmod(path, st.st_mode & 07777) == 0);
}

static const struct index *block_of(const struct board *b)
{
    return (const void *)((const char *)b->catalog + b->catalog->roots[0].block);
}

void board_replica_path(const struct board *b, uint32_t file, char out[512])
{
    char name[REPLICA_NAME_BYTES];
    monarch_replica_name(block_of(b), b->catalog->roots[0].path_hash, file + 1, name);
    snprintf(out, 512, "%s/%.*s", b->tier, REPLICA_NAME_BYTES, name);
}

void board_temporary_path(const struct board *b, uint32_t file, char out[512])
{
    char name[REPLICA_NAME_BYTES];
    monarch_replica_name(block_of(b), b->catalog->roots[0].path_hash, file + 1, name);
    snprintf(out, 512, "%s/.%.*s.%u.part", b->tier, REPLICA_NAME_BYTES, name, file);
}

/* board_recatalog - makes the Catalog agree with the origin as it is now. */
void board_recatalog(struct board *b, uint32_t file)
{
    char path[512];
    struct stat st;
    board_origin_path(b, file, path);
    CHECK(lstat(path, &st) == 0);
    struct entry *e = (struct entry *)(uintptr_t)index_entry(block_of(b), file + 1);
    entry_observe(e, &st);
    b->sizes[file] = e->size;
}

/* fill_index - entry 0 is the root, entry n + 1 is File n. */
static void fill_index(struct board *b, struct index *ix)
{
    struct entry *entries = (void *)((char *)ix + ix->entries);
    struct attr *attrs = (void *)((char *)ix + ix->attrs);
    uint32_t *first = (void *)((char *)ix + ix->first_entry);
    struct stat st;
    CHECK(stat(b->origin, &st) == 0);
    attrs[0] = (struct attr){.mode = S_IFDIR | 0700, .dev = st.st_dev};
    attrs[1] = (struct attr){
        .mode = S_IFREG | 0600, .uid = geteuid(), .dev = st.st_dev};
    entries[0] = (struct entry){.ino = st.st_ino, .file = 0, .target = 0};
    for (uint32_t i = 0; i < b->files; i++) {
        uint64_t at = (uint64_t)i * PATH_STEP;
        char *path = (char *)ix + ix->arena + at;
        size_t n = (size_t)snprintf(path, PATH_STEP, "f%04u", i);
        entries[i + 1] = (struct entry){
            .path = at << 16 | n, .file = i, .attr = 1, .target = i + 1};
        first[i] = i + 1;
    }
}

static size_t plan_index(struct index *ix, uint32_t files)
{
    *ix = (struct index){.entry_count = files + 1,
                         .name_count = files + 1,
                         .file_count = files,
                         .dir_count = 1,
                         .attr_count = 2,
                         .slot_count = 2 * files + 8,
                         .inode_slot_count = 2 * files + 8,
                         .arena_bytes = (uint64_t)files * PATH_STEP};
    return index_place(ix);
}

static uint64_t tier_dev(const struct board *b)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof(path), "%s/probe", b->tier);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    close(fd);
    unlink(path);
    return st.st_dev;
}

static void fill_catalog(struct board *b)
{
    struct index plan;
    size_t index_bytes = plan_index(&plan, b->files);
    size_t head = aligned_bytes(sizeof(struct catalog));
    size_t length = head + index_bytes + 8 + 4ul * b->files + 512;
    struct catalog *cat = b->catalog = shared_memory(length);
    cat->seg = segment_head(SEGMENT_CATALOG, length);
    cat->file_count = b->files;
    cat->dir_count = cat->root_count = cat->tier_count = 1;
    cat->states = (head + index_bytes + 7) / 8 * 8;
    cat->strings = length - 512;
    cat->strings_bytes = 512;
    cat->roots[0] = (struct root){.block = head, .path = strlen(b->origin)};
    strcpy((char *)cat + cat->strings, b->origin);
    cat->tiers[0].dev = tier_dev(b);
    CHECK(strlen(b->tier) < TIER_PATH_MAX);
    memcpy(cat->tiers[0].path, b->tier, strlen(b->tier) + 1);
    struct index *ix = (void *)((char *)cat + head);
    *ix = plan;
    fill_index(b, ix);
    for (uint32_t i = 0; i < b->files; i++)
        board_recatalog(b, i);
    CHECK(index_finish(ix, index_bytes) == 0);
}

/* fill_presence - for Files of several Extents; without `flags` it returns the size. */
static size_t fill_presence(const struct board *b, struct flags *flags, size_t start)
{
    uint64_t count = 0, extents = 0, n = 0;
    for (uint32_t i = 0; i < b->files; i++)
        count += b->sizes[i] > EXTENT_BYTES;
    struct presence p = {.count = count, .first = start + sizeof(p)};
    p.parts = p.first + (count + 1) * sizeof(uint64_t);
    p.files = p.parts + count * sizeof(struct part);
    p.words = p.files + (count + 1) / 2 * 2 * sizeof(uint32_t);
    for (uint32_t i = 0; i < b->files; i++) {
        if (b->sizes[i] <= EXTENT_BYTES)
            continue;
        if (flags) {
            ((uint32_t *)((char *)flags + p.files))[n] = i;
            ((uint64_t *)((char *)flags + p.first))[n] = extents;
        }
        extents += (b->sizes[i] + EXTENT_BYTES - 1) / EXTENT_BYTES;
        n++;
    }
    p.changes = p.words + extents * (EXTENT_BYTES / PAGE_BYTES / 8);
    p.places = p.changes + extents * sizeof(uint32_t);
    p.packed = p.places + extents;
    if (flags && count) {
        ((uint64_t *)((char *)flags + p.first))[n] = extents;
        memset((char *)flags + p.places, PLACE_NONE, extents);
        flags->presence = start;
        memcpy((char *)flags + start, &p, sizeof(p));
    }
    return p.packed + extents - start;
}

static void fill_segments(struct board *b)
{
    size_t opened = flags_bytes(b->files + 1ul), end = opened + b->files;
    size_t presence = (end + 7) / 8 * 8;
    size_t recency = presence + (fill_presence(b, NULL, presence) + 7) / 8 * 8;
    size_t flags = recency + b->files * sizeof(uint32_t);
    size_t inodes = inodes_bytes(2ul * b->files + 8);
    b->flags = shared_memory(flags);
    b->flags->seg = segment_head(SEGMENT_FLAGS, flags);
    b->flags->opened = opened;
    b->recency = recency;
    fill_presence(b, b->flags, presence);
    b->requests = shared_memory(sizeof(struct requests));
    b->requests->seg = segment_head(SEGMENT_REQUESTS, sizeof(struct requests));
    b->inodes = shared_memory(inodes);
    b->inodes->seg = segment_head(SEGMENT_INODES, inodes);
    b->inodes->slot_count = 2ul * b->files + 8;
}

static void fill_digests(struct board *b)
{
    uint64_t total = 0;
    b->digest_first = calloc(b->files, sizeof(uint64_t));
    CHECK(b->digest_first);
    for (uint32_t i = 0; i < b->files; i++) {
        b->digest_first[i] = total;
        total += b->sizes[i] ? (b->sizes[i] + EXTENT_BYTES - 1) / EXTENT_BYTES : 1;
    }
    b->digests = shared_memory(total * sizeof(uint64_t));
    b->seals = shared_memory(total * sizeof(struct monarch_seal));
}

/* tell_late - prints where a test hangs. */
static void tell_late(int number)
{
    static const char line[] = "the test takes too long here:\n";
    void *frames[FRAMES];
    (void)number;
    (void)!write(STDERR_FILENO, line, sizeof(line) - 1);
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    _exit(1);
}

/* limit_time - limits the time until the next board, if the environment sets it. */
static void limit_time(void)
{
    const char *limit_s = getenv("TEST_LIMIT_S");
    if (!limit_s)
        return;
    signal(SIGALRM, tell_late);
    alarm((unsigned)atoi(limit_s));
}

struct board *board_new(uint32_t files, const uint64_t *sizes)
{
    limit_time();
    struct board *b = shared_memory(sizeof(*b));
    const char *parent = getenv("TEST_BASE") ? getenv("TEST_BASE") : "/tmp";
    CHECK(files <= FILES_MAX);
    snprintf(b->base, sizeof(b->base), "%s/board.XXXXXX", parent);
    CHECK(mkdtemp(b->base));
    snprintf(b->origin, sizeof(b->origin), "%s/origin",
             getenv("TEST_ORIGIN") ? getenv("TEST_ORIGIN") : b->base);
    snprintf(b->tier, sizeof(b->tier), "%s/tier", b->base);
    CHECK(mkdir(b->origin, 0700) == 0 && mkdir(b->tier, 0700) == 0);
    b->files = files;
    memcpy(b->sizes, sizes, files * sizeof(*sizes));
    for (uint32_t i = 0; i < files; i++)
        board_write_origin(b, i);
    fill_catalog(b);
    fill_segments(b);
    fill_digests(b);
    if (getenv("TEST_SEALED"))
        board_set_key(b, board_key);
    return b;
}

struct board *board_new_equal(uint32_t files, uint64_t size)
{
    static uint64_t sizes[FILES_MAX];
    for (uint32_t i = 0; i < files; i++)
        sizes[i] = size;
    return board_new(files, sizes);
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

void board_free(struct board *b)
{
    board_stop(b);
    nftw(b->base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(b->digest_first);
}

struct table *board_table(struct board *b, uint32_t extents, uint64_t large_bytes,
                          uint64_t tier_bytes)
{
    static const uint32_t base;
    struct table *table;
    uint32_t count = b->files * extents;
    struct monarch_table_row *rows = calloc(count, sizeof(*rows));
    CHECK(rows);
    for (uint32_t i = 0; i <= b->files; i++)
        b->first[i] = (uint64_t)i * extents;
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (struct monarch_table_row){
            .destination = DESTINATION_TIER,
            .sources = {NO_SOURCE, NO_SOURCE, NO_SOURCE}};
    const struct monarch_table_options options = {
        .sizes = b->sizes,
        .words = (uint32_t *)(uintptr_t)replica_word(b->catalog, 0),
        .marks = b->flags->written,
        .root_marks = b->flags->roots,
        .bases = &base,
        .first = b->first,
        .files = b->files,
        .roots = 1,
        .tiers = 1,
        .large_bytes = large_bytes,
    };
    const struct monarch_plan plan = {.rows = rows};
    CHECK(monarch_table_new(&options, &table) == 0);
    monarch_table_set_capacity(table, 0, tier_bytes);
    CHECK(monarch_table_follow(table, &plan) == 0);
    free(rows);
    b->options.table = table;
    return table;
}

/* board_start - a new engine; options other than these two are set in b->options, also
 * a lower limit of background Transfers at first. */
void board_start(struct board *b, uint32_t threads, uint32_t background_max)
{
    const struct monarch_segments segments = {b->catalog, b->flags, b->requests,
                                              b->inodes};
    b->options.threads = threads;
    b->options.background_max = background_max;
    if (!b->options.background_first)
        b->options.background_first = background_max;
    b->options.digests = b->digests;
    b->options.digest_first = b->digest_first;
    CHECK(monarch_engine_new(&segments, &b->options, &b->engine) == 0);
}

/* board_set_key - later engines make seals with this key; NULL: none. */
void board_set_key(struct board *b, const uint8_t *key)
{
    b->options.seal_key = key;
    b->options.seals = key ? b->seals : NULL;
    const char *how = getenv("TEST_SEALED");
    b->options.seals_only = key && how && strcmp(how, "only") == 0;
}

void board_stop(struct board *b)
{
    if (b->engine)
        CHECK(monarch_engine_free(b->engine, PATIENCE_MS) == 0);
    b->engine = NULL;
    CHECK(memcmp(b->flags->seg.magic, "MONARCH", 8) == 0); /* not overwritten */
}

/* board_state - without generation and confirmation. */
uint32_t board_state(const struct board *b, uint32_t file)
{
    return replica_load(b->catalog, file) & STATE_FIXED;
}

/* board_set_state - stores a state word of the first generation, and wakes. */
void board_set_state(struct board *b, uint32_t file, uint32_t word)
{
    uint32_t *words = (uint32_t *)(uintptr_t)replica_word(b->catalog, 0);
    while (!monarch_state_change(words, file, replica_load(b->catalog, file), word, 1))
        ;
}

/* board_replica_right - the Replica is whole, right, read-only and has the mtime. */
bool board_replica_right(const struct board *b, uint32_t file)
{
    char path[512];
    struct stat st;
    static uint8_t bytes[1 << 16];
    board_replica_path(b, file, path);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return false;
    CHECK(fstat(fd, &st) == 0);
    uint64_t at = 0;
    bool same = (st.st_mode & 07777) == 0400;
    for (ssize_t n; same && (n = read(fd, bytes, sizeof(bytes))) > 0; at += (size_t)n)
        same = bytes_right(file, at, bytes, (size_t)n);
    close(fd);
    const struct entry *e = index_entry(block_of(b), file + 1);
    return same && at == b->sizes[file] &&
           st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec == e->mtime_ns;
}

/* board_names - the number of names in the Tier with this suffix. */
unsigned board_names(const struct board *b, const char *suffix)
{
    unsigned n = 0;
    DIR *dir = opendir(b->tier);
    CHECK(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        size_t length = strlen(d->d_name), tail = strlen(suffix);
        n += strcmp(d->d_name, ".") && strcmp(d->d_name, "..") && length >= tail &&
             strcmp(d->d_name + length - tail, suffix) == 0;
    }
    closedir(dir);
    return n;
}

/* board_submit - as the agent does: STAGING first, then the order. */
void board_submit(struct board *b, uint32_t file, uint8_t kind)
{
    const struct monarch_order order = {.file = file, .kind = kind};
    board_set_state(b, file, STATE_WORD(REPLICA_STAGING, 0, 0));
    CHECK(monarch_engine_submit(b->engine, &order, 1) == 1);
}

static bool wait_event(struct board *b, int patience_ms)
{
    struct pollfd fd = {.fd = monarch_engine_event_fd(b->engine), .events = POLLIN};
    int n;
    do
        n = poll(&fd, 1, patience_ms);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* board_wait - the next completion. */
struct monarch_completion board_wait(struct board *b)
{
    struct monarch_completion done;
    while (monarch_engine_completions(b->engine, &done, 1) == 0)
        CHECK(wait_event(b, PATIENCE_MS));
    return done;
}

struct monarch_completion board_run(struct board *b, uint32_t file, uint8_t kind)
{
    board_submit(b, file, kind);
    return board_wait(b);
}

/* board_ask - acts as a program: fills a slot and wakes an idle thread, or else the
 * listening one. */
void board_ask(struct board *b, uint32_t slot, uint64_t value)
{
    uint32_t *called = &b->requests->called, *bell = &b->requests->bell;
    atomic_store((_Atomic uint64_t *)&b->requests->slots[slot], value);
    if (atomic_exchange((_Atomic uint32_t *)called, 1) ||
        syscall(SYS_futex, called, FUTEX_WAKE, 1, NULL, NULL, 0) > 0)
        return;
    atomic_fetch_add((_Atomic uint32_t *)bell, 1);
    syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* board_wait_idle - waits until so many threads wait for work. */
void board_wait_idle(struct board *b, uint32_t threads)
{
    uint32_t idle = 0;
    while (idle != threads) {
        poll(NULL, 0, 1);
        pthread_mutex_lock(&b->engine->transfers.lock);
        idle = b->engine->transfers.idle;
        pthread_mutex_unlock(&b->engine->transfers.lock);
    }
    poll(NULL, 0, 1); /* the last of them may just be going to sleep */
}

uint32_t board_asked(struct board *b, uint32_t *files, uint32_t max, int patience_ms)
{
    return wait_event(b, patience_ms) ? monarch_engine_requests(b->engine, files, max)
                                      : 0;
}
