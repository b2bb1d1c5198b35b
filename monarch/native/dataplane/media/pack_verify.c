/* pack_verify.c - decodes a frame of a retained Tier and compares its checksum, for `monarch stage
 * --check`, while no engine uses the segment. */
#include "dataplane/media/pack_verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/media/codec.h"
#include "shared/xxh3.h"

/* decode - decodes all pieces; 0 if their bytes have the checksum of the head. */
static int decode(struct coder *coder, const uint8_t *frame, uint8_t *out)
{
    struct frame_head head;
    memcpy(&head, frame, sizeof(head));
    const uint8_t *at = frame + frame_least_bytes(head.plain);
    uint32_t left = head.plain, length;
    uint64_t chain = 0;
    for (uint32_t i = 0; i < frame_pieces(head.plain); i++) {
        uint32_t plain = left < PIECE_BYTES ? left : PIECE_BYTES;
        memcpy(&length, frame + sizeof(head) + i * sizeof(length), sizeof(length));
        bool raw = length & FRAME_RAW;
        length &= ~FRAME_RAW;
        int rc = raw ? 0 : monarch_coder_unpack(coder, at, length, out, plain);
        if (rc)
            return rc;
        chain = xxh3(raw ? at : out, plain, chain);
        at += length;
        left -= plain;
    }
    return chain == head.digest ? 0 : -EBADMSG;
}

/* check - checks that bytes are the frame of an entry; 0 if they are. */
static int check(const struct monarch_pack_entry *one, const struct monarch_packing *k,
                 const uint8_t *frame)
{
    struct frame_head head, expected = {.plain = one->plain};
    uint32_t lengths[FRAME_PIECES_MAX];
    memcpy(&head, frame, sizeof(head));
    memcpy(lengths, frame + sizeof(head), frame_pieces(one->plain) * sizeof(*lengths));
    expected.stored = one->bytes - (uint32_t)sizeof(head);
    expected.method = (uint8_t)k->method;
    expected.shuffle = (uint8_t)k->shuffle;
    memcpy(expected.name, one->name, sizeof(expected.name));
    return frame_check(&head, lengths, &expected);
}

/* monarch_pack_verify - verifies the frame of an entry of monarch_pack_index_read(). -EBADMSG: it
 * is damaged; -ENOSYS, -ENOMEM: it cannot be decoded here. */
int monarch_pack_verify(int fd, const struct monarch_pack_entry *one,
                        const struct monarch_packing *packing)
{
    struct coder *coder;
    int rc = packing_coder(packing, &coder);
    if (rc)
        return rc;
    uint8_t *frame = malloc(one->bytes), *out = malloc(PIECE_BYTES);
    if (!frame || !out)
        rc = -ENOMEM;
    else if (file_read_at(fd, frame, one->bytes, one->offset) != (ssize_t)one->bytes)
        rc = -EBADMSG;
    rc = rc ? rc : check(one, packing, frame);
    rc = rc ? rc : decode(coder, frame, out);
    free(frame);
    free(out);
    monarch_coder_free(coder);
    return rc;
}
