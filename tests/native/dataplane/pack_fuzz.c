/* pack_fuzz.c - libFuzzer's entry to the readers of frames and indexes: whatever a pack
 * file contains, nothing is read or written outside of it and of the File's bytes. */
#include <sys/mman.h>
#include <unistd.h>

#include "board.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/frame.h"
#include "dataplane/media/pack_index.h"

enum { PLAIN_MAX = 3 * PIECE_BYTES, ENTRIES_MAX = 256 };

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

/* decode - as repacking.c does: piece by piece, into a buffer of the plain size. */
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

/* check_index - an accepted index names each byte of the frames at most once. */
static void check_index(int fd, uint64_t most)
{
    struct monarch_pack_entry found[ENTRIES_MAX];
    int64_t count = monarch_pack_index_read(fd, found, ENTRIES_MAX);
    uint64_t at = 0;
    for (int64_t i = 0; i < count && count <= ENTRIES_MAX; i++) {
        CHECK(found[i].offset >= at && found[i].plain <= EXTENT_BYTES);
        CHECK(found[i].blocks <= EXTENT_BLOCKS);
        at = (uint64_t)found[i].offset + found[i].bytes;
        CHECK(found[i].bytes > frame_least_bytes(found[i].plain) && at <= most);
    }
}

/* read_index - first unchanged, then as entries with a right checksum behind some
 * frames, so that the fuzzer reaches the checks of the entries. */
static void read_index(const uint8_t *bytes, size_t n)
{
    struct monarch_pack_entry entries[ENTRIES_MAX];
    uint64_t digests[ENTRIES_MAX], frames = n * 16;
    struct pack_list list = {entries, digests, n / sizeof(entries[0]), 0};
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("pack", 0);
    CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
    CHECK(pwrite(fd, bytes, n, 0) == (ssize_t)n);
    check_index(fd, n);
    if (list.count > ENTRIES_MAX)
        return;
    memcpy(entries, bytes, list.count * sizeof(entries[0]));
    memcpy(digests, bytes, n < sizeof(digests) ? n : sizeof(digests));
    for (uint64_t i = 0; i < list.count; i++)
        list.blocks += entries[i].blocks;
    if (list.blocks > ENTRIES_MAX)
        return;
    CHECK(pack_index_write(fd, frames, &list) == 0);
    check_index(fd, frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    read_index(bytes, n);
    struct frame_head head, expected;
    uint32_t lengths[FRAME_PIECES_MAX];
    if (n < sizeof(head))
        return 0;
    memcpy(&head, bytes, sizeof(head));
    /* Codec, size and name are those of the Tier and the File; here the frame chooses
     * one, so that the fuzzer finds all. */
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
