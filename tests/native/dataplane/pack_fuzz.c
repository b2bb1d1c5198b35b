/* pack_fuzz.c - libFuzzer's door to the reader of frames: whatever stands in a pack file,
 * nothing is read or written outside of it and of the File's own bytes. */
#include "board.h"
#include "dataplane/codec.h"
#include "dataplane/frame.h"

enum { PLAIN_MAX = 3 * PIECE_BYTES };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* coder_for - one coder for each method and shuffle, kept. */
static struct coder *coder_for(const struct frame_head *head)
{
    static struct coder *coders[METHODS][SHUFFLE_MAX + 1];
    struct coder **place = &coders[head->method][head->shuffle];
    if (!*place)
        CHECK(monarch_coder_new(head->method, 1, head->shuffle, place) == 0);
    return *place;
}

/* decode - as repacking.c does: piece by piece, into a buffer of just the plain bytes. */
static void decode(const struct frame_head *head, const uint32_t *lengths,
                   const uint8_t *at)
{
    uint32_t left = head->plain;
    for (uint32_t i = 0; i < frame_pieces(head->plain); i++) {
        uint32_t plain = left < PIECE_BYTES ? left : PIECE_BYTES;
        uint32_t length = lengths[i] & ~FRAME_RAW;
        if (!(lengths[i] & FRAME_RAW) && head->method != METHOD_NONE) {
            uint8_t *out = malloc(plain), *in = malloc(length ? length : 1);
            CHECK(out && in);
            memcpy(in, at, length);
            monarch_coder_unpack(coder_for(head), in, length, out, plain);
            free(in);
            free(out);
        }
        at += length;
        left -= plain;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct frame_head head, expected;
    uint32_t lengths[FRAME_PIECES_MAX];
    if (n < sizeof(head))
        return 0;
    memcpy(&head, bytes, sizeof(head));
    /* Codec, size and name are those of the Tier and the File; here the frame tells which
     * of them it is for, so that the fuzzer finds all. */
    head.method %= METHODS;
    head.shuffle = head.shuffle % SHUFFLE_MAX + 1;
    expected = head;
    expected.plain = head.plain % PLAIN_MAX;
    expected.stored = (uint32_t)(n - sizeof(head));
    size_t table = frame_pieces(expected.plain) * sizeof(uint32_t);
    if (n < sizeof(head) + table)
        return 0;
    memcpy(lengths, bytes + sizeof(head), table);
    if (frame_check(&head, lengths, &expected))
        return 0;
    CHECK(head.plain == expected.plain && head.stored == n - sizeof(head));
    decode(&head, lengths, bytes + sizeof(head) + table);
    return 0;
}
