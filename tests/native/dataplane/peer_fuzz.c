/* peer_fuzz.c - libFuzzer's entry to the checks of frames: accepted frames are true. */
#include "board.h"
#include "dataplane/media/frame.h"
#include "dataplane/peers/wire.h"

enum { FILES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const uint64_t sizes[FILES] = {0, 5000, 2 * EXTENT_BYTES + 1};

static void expect_true_request(const struct frame_request *f)
{
    CHECK(f->file < FILES && f->blocks);
    uint64_t size = sizes[f->file], end = (uint64_t)f->first + f->blocks;
    CHECK(end <= (size ? blocks_of(size) : 1));
    CHECK(f->first / EXTENT_BLOCKS == (end - 1) / EXTENT_BLOCKS);
}

static void expect_true_reply(const struct frame_request *asked,
                              const struct frame_reply *f)
{
    const struct block_run pieces = frame_pieces_range(asked);
    uint64_t size = sizes[asked->file];
    uint64_t plain = blocks_bytes(size, pieces.first, pieces.count);
    CHECK(f->file == asked->file && f->first == asked->first && f->id == asked->id);
    CHECK(!f->ready || f->ready == FRAME_READY);
    if (f->status)
        CHECK(f->status < 0 && !f->size);
    else if (f->packed)
        CHECK(asked->packing && f->size && f->size <= plain + frame_least_bytes(plain));
    else
        CHECK(f->size == blocks_bytes(size, asked->first, asked->blocks));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct board *board;
    struct frame_request asked;
    struct frame_reply reply;
    if (!board) {
        board = board_new(FILES, sizes);
        free(board->digest_first); /* frames are checked without; apparently a leak */
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
