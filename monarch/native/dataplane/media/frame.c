/* frame.c - builds a frame piece by piece, and checks the heads of frames. */
#include "dataplane/media/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/base/clock.h"
#include "dataplane/base/syscalls.h"
#include "dataplane/media/codec.h"

/* A piece that shrinks by less than 1/21 is stored as it is: a ratio of 1.05. */
enum { LEAST_PART = 21 };

static int with_room(uint64_t plain, size_t room, struct frame **out)
{
    struct frame *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->plain = (uint32_t)plain;
    f->room = room;
    f->bytes = malloc(f->room);
    if (!f->bytes) {
        free(f);
        return -ENOMEM;
    }
    *out = f;
    return 0;
}

/* frame_new - creates an empty frame for a File of this size. */
int frame_new(uint32_t tier, uint64_t plain, struct frame **out)
{
    int rc = with_room(plain, frame_least_bytes(plain) + plain, out);
    if (rc)
        return rc;
    (*out)->tier = tier;
    (*out)->used = frame_least_bytes(plain);
    return 0;
}

/* frame_new_expected - creates a frame for the bytes that a peer sends. */
int frame_new_expected(uint64_t plain, size_t bytes, struct frame **out)
{
    return with_room(plain, bytes, out);
}

/* frame_free - frees a frame; does nothing if it is NULL. */
void frame_free(struct frame **f)
{
    if (*f)
        free((*f)->bytes);
    free(*f);
    *f = NULL;
}

static void set_length(struct frame *f, uint32_t piece, uint32_t length)
{
    memcpy(f->bytes + sizeof(struct frame_head) + piece * sizeof(length), &length,
           sizeof(length));
}

/* frame_piece_room - returns the most bytes that a compressed piece may have; a larger one is
 * stored as it is. */
size_t frame_piece_room(size_t n)
{
    return n - n / LEAST_PART - 1;
}

/* frame_added - notes the next piece, compressed in place to `packed` bytes; if that is -ENOSPC,
 * stores it as it is. -EMSGSIZE: the File has fewer bytes. */
int frame_added(struct frame *f, int64_t packed, const void *bytes, size_t n)
{
    if (n > f->plain - f->added || n > PIECE_BYTES)
        return -EMSGSIZE;
    if (packed < 0 && packed != -ENOSPC)
        return (int)packed;
    if (packed < 0)
        memcpy(frame_end(f), bytes, n);
    f->any_packed |= packed >= 0;
    set_length(f, f->pieces++, packed < 0 ? (uint32_t)n | FRAME_RAW : (uint32_t)packed);
    f->used += packed < 0 ? n : (size_t)packed;
    f->added += (uint32_t)n;
    return 0;
}

/* frame_add - adds the next piece, uncompressed without a coder. -EMSGSIZE: see frame_added(). */
int frame_add(struct frame *f, struct coder *coder, const void *bytes, size_t n)
{
    uint64_t began = clock_cpu_ns();
    bool fits = n <= f->plain - f->added && n <= PIECE_BYTES;
    int64_t packed = -ENOSPC;
    if (coder && fits)
        packed = monarch_coder_pack(coder, bytes, n, frame_end(f), frame_piece_room(n));
    f->ns += clock_cpu_ns() - began;
    return frame_added(f, packed, bytes, n);
}

/* frame_put - appends bytes of a frame as they arrive. -EMSGSIZE: too many bytes. */
int frame_put(struct frame *f, const void *bytes, size_t n)
{
    if (n > f->room - f->used)
        return -EMSGSIZE;
    memcpy(f->bytes + f->used, bytes, n);
    f->used += n;
    return 0;
}

/* frame_length - returns the stored bytes of a piece, with FRAME_RAW if it is not compressed. */
uint32_t frame_length(const struct frame *f, uint32_t piece)
{
    uint32_t length;
    memcpy(&length, f->bytes + sizeof(struct frame_head) + piece * sizeof(length),
           sizeof(length));
    return length;
}

/* frame_finish - writes the head of a frame that has all its pieces. */
void frame_finish(struct frame *f, const struct frame_head *head)
{
    struct frame_head own = *head;
    own.magic = FRAME_MAGIC;
    own.plain = f->plain;
    own.stored = (uint32_t)(f->used - sizeof(own));
    memcpy(f->bytes, &own, sizeof(own));
}

/* frame_check - returns -EBADMSG unless a head and its lengths match the expected File and codec,
 * and all pieces are within the stored bytes. */
int frame_check(const struct frame_head *head, const uint32_t *lengths,
                const struct frame_head *expected)
{
    uint32_t pieces = frame_pieces(expected->plain), left = head->plain;
    uint64_t sum = pieces * sizeof(uint32_t);
    if (head->magic != FRAME_MAGIC || head->plain != expected->plain ||
        head->stored != expected->stored || head->method != expected->method ||
        head->shuffle != expected->shuffle ||
        memcmp(head->name, expected->name, sizeof(head->name)))
        return -EBADMSG;
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t plain = left < PIECE_BYTES ? left : PIECE_BYTES;
        uint32_t length = lengths[i] & ~FRAME_RAW;
        if (lengths[i] & FRAME_RAW ? length != plain : length >= plain)
            return -EBADMSG;
        sum += length;
        left -= plain;
    }
    return sum == head->stored ? 0 : -EBADMSG;
}

/* frame_read - reads the head of a frame and the lengths of its pieces. Returns 1 if they match
 * `expected`, 0 if they do not or are missing, else the error of the medium. */
int frame_read(int fd, uint64_t at, const struct frame_head *expected,
               struct frame_head *head, uint32_t *lengths)
{
    uint8_t bytes[sizeof(*head) + FRAME_PIECES_MAX * sizeof(*lengths)];
    size_t n = frame_least_bytes(expected->plain);
    if (expected->plain > EXTENT_BYTES)
        return 0;
    ssize_t got = file_read_at(fd, bytes, n, at);
    if (got != (ssize_t)n)
        return got < 0 ? (int)got : 0;
    memcpy(head, bytes, sizeof(*head));
    memcpy(lengths, bytes + sizeof(*head), n - sizeof(*head));
    return frame_check(head, lengths, expected) == 0;
}

/* frame_accept - accepts a frame whose bytes have all arrived. -EBADMSG: its size or codec is not
 * `expected`. The File has another name at the peer if its root has. */
int frame_accept(struct frame *f, const struct frame_head *expected)
{
    struct frame_head head, own = *expected;
    uint32_t lengths[FRAME_PIECES_MAX];
    if (f->used < frame_least_bytes(f->plain))
        return -EBADMSG;
    memcpy(&head, f->bytes, sizeof(head));
    f->pieces = frame_pieces(f->plain);
    for (uint32_t i = 0; i < f->pieces; i++) {
        lengths[i] = frame_length(f, i);
        f->any_packed |= !(lengths[i] & FRAME_RAW);
    }
    own.stored = (uint32_t)(f->used - sizeof(head));
    memcpy(own.name, head.name, sizeof(own.name));
    f->digest = head.digest;
    f->added = f->plain;
    return frame_check(&head, lengths, &own);
}

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* frame_name - converts the name of a Replica to its form in a frame. */
void frame_name(const char *replica, uint8_t out[FRAME_NAME_BYTES])
{
    for (int i = 0; i < FRAME_NAME_BYTES; i++)
        out[i] = (uint8_t)(digit(replica[2 * i]) << 4 | digit(replica[2 * i + 1]));
}
