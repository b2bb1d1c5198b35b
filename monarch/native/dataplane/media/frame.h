/* frame.h - a File in packed form, as pack files of a Tier contain it.
 *
 *   struct frame_head | u32 length of each piece | pieces
 *
 * A piece is PIECE_BYTES of the File, the last one is the rest. A piece that is stored as it is has
 * FRAME_RAW set in its length. Integers are little-endian. The checksum covers the plain bytes and
 * is computed like that of an Extent.
 */
#ifndef MONARCH_FRAME_H
#define MONARCH_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/layout.h"

enum {
    PIECE_BYTES = CHUNK_BYTES,
    FRAME_PIECES_MAX = EXTENT_BYTES / PIECE_BYTES,
    FRAME_NAME_BYTES = REPLICA_NAME_BYTES / 2,
};

#define FRAME_MAGIC 0x4d52464du /* "MFRM" */
#define FRAME_RAW 0x80000000u

struct coder;

struct frame_head {
    uint32_t magic;
    uint32_t plain, stored; /* bytes of the File; bytes after this struct */
    uint8_t method, shuffle;
    int16_t level;
    uint64_t digest;
    uint8_t name[FRAME_NAME_BYTES]; /* of the Replica, as a number */
};

_Static_assert(sizeof(struct frame_head) == 40, "frame_head");

struct frame { /* a frame that is being built, or comes from a peer */
    uint32_t plain, added, pieces;
    uint32_t tier;
    bool any_packed; /* at least one piece has shrunk */
    size_t used, room;
    uint64_t ns;     /* processor time to compress */
    uint64_t digest; /* of an accepted frame */
    uint32_t id;     /* the same: see packs_id() */
    uint8_t *bytes;
};

/* frame_pieces - returns the number of pieces of a File of this size. */
static inline uint32_t frame_pieces(uint64_t plain)
{
    return (uint32_t)((plain + PIECE_BYTES - 1) / PIECE_BYTES);
}

/* frame_least_bytes - returns the size of the head and the lengths of the pieces. */
static inline size_t frame_least_bytes(uint64_t plain)
{
    return sizeof(struct frame_head) + frame_pieces(plain) * sizeof(uint32_t);
}

/* frame_end - returns the address where the next piece is written. */
static inline uint8_t *frame_end(struct frame *f)
{
    return f->bytes + f->used;
}

int frame_new(uint32_t tier, uint64_t plain, struct frame **out);
void frame_free(struct frame **f);
size_t frame_piece_room(size_t n);
int frame_added(struct frame *f, int64_t packed, const void *bytes, size_t n);
int frame_add(struct frame *f, struct coder *coder, const void *bytes, size_t n);
void frame_finish(struct frame *f, const struct frame_head *head);

int frame_new_expected(uint64_t plain, size_t bytes, struct frame **out);
int frame_put(struct frame *f, const void *bytes, size_t n);
int frame_accept(struct frame *f, const struct frame_head *expected);
uint32_t frame_length(const struct frame *f, uint32_t piece);
int frame_check(const struct frame_head *head, const uint32_t *lengths,
                const struct frame_head *expected);

int frame_read(int fd, uint64_t at, const struct frame_head *expected,
               struct frame_head *head, uint32_t *lengths);

void frame_name(const char *replica, uint8_t out[FRAME_NAME_BYTES]);

#endif
