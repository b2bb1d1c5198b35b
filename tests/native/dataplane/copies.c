/* copies.c - Files of all sizes arrive whole, named, sealed, known and published. */
#include "board.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/replica_table.h"
#include "shared/xxh3.h"

static const uint64_t sizes[] = {
    0,
    1,
    4095,
    112640,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    EXTENT_BYTES,
    EXTENT_BYTES + 1,
    2 * EXTENT_BYTES + 77,
};
enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };

/* expect_digests - computed again, from the Replica. */
static void expect_digests(const struct board *b, uint32_t file)
{
    char path[512];
    board_replica_path(b, file, path);
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(CHUNK_BYTES);
    CHECK(f && bytes);
    const uint64_t *digest = b->digests + b->digest_first[file];
    uint64_t chain = 0, at = 0;
    for (size_t n; (n = fread(bytes, 1, CHUNK_BYTES, f)) > 0;) {
        chain = xxh3(bytes, n, at % EXTENT_BYTES ? chain : 0);
        at += n;
        if (at % EXTENT_BYTES == 0 || at == b->sizes[file])
            CHECK(*digest++ == chain);
    }
    CHECK(at == b->sizes[file]);
    CHECK(at || *digest == 0);
    fclose(f);
    free(bytes);
}

static void expect_published(const struct board *b, uint32_t file)
{
    char path[512];
    struct stat st;
    board_replica_path(b, file, path);
    CHECK(stat(path, &st) == 0);
    CHECK(board_state(b, file) == STATE_WORD(REPLICA_READY, 0, 0));
    CHECK(board_replica_right(b, file));
    CHECK(replica_find(b->inodes, 0, st.st_ino) == file);
    expect_digests(b, file);
}

static void copy_all(uint8_t kind)
{
    struct board *b = board_new(COUNT, sizes);
    bool seen[COUNT] = {false};
    board_start(b, 2, 1);
    for (uint32_t i = 0; i < COUNT; i++)
        board_submit(b, i, kind);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct monarch_completion done = board_wait(b);
        CHECK(done.status == 0 && done.kind == kind && !seen[done.file]);
        CHECK(done.bytes == sizes[done.file] && done.ns > 0);
        seen[done.file] = true;
        expect_published(b, done.file);
    }
    CHECK(board_names(b, ".part") == 0 && board_names(b, "") == COUNT);
    board_free(b);
}

/* ---- pages of the origin ----------------------------------------------------------- */

enum { PAGED_BYTES = EXTENT_BYTES + 300000, PAGES = PAGED_BYTES / 4096 + 1 };

static void *mapped;
static struct board *paged;

/* map_last - another program maps the last page while the File is copied. */
static ssize_t map_last(int fd, void *buffer, size_t n)
{
    if (n > 8 && !mapped) {
        char path[512];
        board_origin_path(paged, 0, path);
        int other = open(path, O_RDONLY);
        mapped = mmap(NULL, PAGED_BYTES, PROT_READ, MAP_SHARED, other, 0);
        CHECK(mapped != MAP_FAILED);
        CHECK(((volatile char *)mapped)[PAGED_BYTES - 1] || true);
        close(other);
    }
    return __real_read(fd, buffer, n);
}

static void a_large_file_leaves_no_pages_at_the_origin(uint8_t kind)
{
    struct board *b = board_new_equal(1, PAGED_BYTES);
    if (board_forget_pages(b, 0)) {
        board_start(b, 1, 1);
        CHECK(board_run(b, 0, kind).status == 0);
        CHECK(board_cached_pages(b, 0) == 0);
        CHECK(board_replica_right(b, 0));
    }
    board_free(b);
}

static void what_others_have_read_before_stays(void)
{
    struct board *b = board_new_equal(1, PAGED_BYTES);
    CHECK(board_cached_pages(b, 0) == PAGES);
    board_start(b, 1, 1);
    CHECK(board_run(b, 0, MONARCH_DEMAND).status == 0);
    CHECK(syscall(451, -1, NULL, NULL, 0) && (errno == ENOSYS || errno == EBADF));
    CHECK(errno == ENOSYS || board_cached_pages(b, 0) == PAGES);
    board_free(b);
}

static void what_others_map_stays_and_is_right(void)
{
    struct board *b = paged = board_new_equal(1, PAGED_BYTES);
    char last;
    if (board_forget_pages(b, 0)) {
        fault_read = map_last;
        board_start(b, 1, 1);
        CHECK(board_run(b, 0, MONARCH_DEMAND).status == 0);
        fault_read = NULL;
        CHECK(mapped && board_replica_right(b, 0));
        char path[512];
        board_replica_path(b, 0, path);
        int fd = open(path, O_RDONLY);
        CHECK(__real_pread(fd, &last, 1, PAGED_BYTES - 1) == 1);
        CHECK(((char *)mapped)[PAGED_BYTES - 1] == last);
        close(fd);
        munmap(mapped, PAGED_BYTES);
    }
    board_free(b);
}

/* Including pages that the program will read later. */
static void what_programs_map_stays_all(void)
{
    struct board *b = board_new_equal(1, PAGED_BYTES);
    struct flags *f = b->flags;
    f->whole = offsetof(struct flags, tick); /* no Tier needs it */
    ((uint8_t *)f)[f->whole] = WHOLE_MAPPED;
    if (board_forget_pages(b, 0)) {
        board_start(b, 1, 1);
        CHECK(board_run(b, 0, MONARCH_BACKGROUND).status == 0);
        CHECK(board_cached_pages(b, 0) == PAGES);
    }
    board_free(b);
}

static void a_small_file_keeps_them(void)
{
    struct board *b = board_new_equal(1, EXTENT_BYTES);
    if (board_forget_pages(b, 0)) {
        board_start(b, 1, 1);
        CHECK(board_run(b, 0, MONARCH_DEMAND).status == 0);
        CHECK(board_cached_pages(b, 0) > 0);
    }
    board_free(b);
}

int main(void)
{
    copy_all(MONARCH_DEMAND);
    copy_all(MONARCH_BACKGROUND);
    a_large_file_leaves_no_pages_at_the_origin(MONARCH_DEMAND);
    a_large_file_leaves_no_pages_at_the_origin(MONARCH_BACKGROUND);
    what_others_have_read_before_stays();
    what_others_map_stays_and_is_right();
    what_programs_map_stays_all();
    a_small_file_keeps_them();
    return PASS;
}
