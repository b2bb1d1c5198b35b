/* copies.c - Files of all sizes arrive whole, named, sealed, known and published. */
#include "board.h"

#include <sys/stat.h>

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

/* expect_digests - computed a second time, from the Replica. */
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

int main(void)
{
    copy_all(MONARCH_DEMAND);
    copy_all(MONARCH_BACKGROUND);
    return PASS;
}
