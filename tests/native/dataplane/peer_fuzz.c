/* peer_fuzz.c - libFuzzer's door to the judges of frames: what they let pass is true. */
#include "board.h"
#include "dataplane/media/frame.h"
#include "dataplane/peers/wire.h"

enum { FILES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const uint64_t sizes[FILES] = {0, 5000, 2 * EXTENT_BYTES + 1};

static void expect_true_request(const struct frame_request *f)
{
    CHECK(f->file < FILES);
    if (f->kind == FRAME_PACKED)
        CHECK(f->packing && sizes[f->file] && sizes[f->file] <= EXTENT_BYTES);
    else if (f->kind == FRAME_EXTENT)
        CHECK(f->extent < extents_of(sizes[f->file]));
    else
        CHECK((uint64_t)f->extent * BLOCK_BYTES < sizes[f->file]);
}

static uint64_t most_bytes(const struct frame_request *asked)
{
    uint64_t size = sizes[asked->file];
    if (asked->kind == FRAME_BLOCKS)
        return blocks_bytes(size, asked->extent, asked->blocks);
    if (asked->kind == FRAME_PACKED)
        return size + frame_least_bytes(size);
    return extent_bytes(size, asked->extent);
}

static void expect_true_reply(const struct frame_request *asked,
                              const struct frame_reply *f)
{
    CHECK(f->file == asked->file && f->extent == asked->extent && f->id == asked->id);
    CHECK(!f->ready || f->ready == FRAME_READY);
    if (f->status)
        CHECK(f->status < 0 && !f->size);
    else if (f->packed)
        CHECK(asked->packing && f->size &&
              f->size <=
                  (asked->kind == FRAME_BLOCKS ? CHUNK_BYTES : most_bytes(asked)));
    else
        CHECK(f->size ==
              (asked->kind == FRAME_PACKED ? sizes[f->file] : most_bytes(asked)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct board *board;
    struct frame_request asked;
    struct frame_reply reply;
    if (!board) {
        board = board_new(FILES, sizes);
        free(board->digest_first); /* frames are judged without; a leak, as it seems */
    }
    if (n < sizeof(asked))
        return 0;
    memcpy(&asked, bytes, sizeof(asked));
    if (frame_check_request(board->catalog, &asked))
        return 0;
    expect_true_request(&asked);
    if (n < sizeof(asked) + sizeof(reply))
        return 0;
    memcpy(&reply, bytes + sizeof(asked), sizeof(reply));
    if (frame_check_reply(board->catalog, &asked, &reply) == 0)
        expect_true_reply(&asked, &reply);
    return 0;
}
