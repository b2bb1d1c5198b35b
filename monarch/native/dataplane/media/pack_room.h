/* pack_room.h - a segment, and the space that its frames use on the medium. */
#ifndef MONARCH_PACK_ROOM_H
#define MONARCH_PACK_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct pack_segment {
    int fd;
    uint32_t tier;
    uint64_t bytes;   /* offset of the next frame */
    uint64_t held;    /* of frames that Files use */
    uint64_t room;    /* in use: its frames and holes, without freed pages */
    uint32_t pending; /* frames that are being written */
    bool dropped;     /* it is empty and can be reused */
    bool rounded;     /* a page is reserved for it, see table_round_pack() */
    bool stuck;       /* compaction has failed; until its next frame dies */
    uint16_t *dead;   /* per page: bytes that no File uses; NULL: no frame died */
};

uint64_t pack_room_free_orphan(struct pack_segment *s, uint64_t offset, uint64_t bytes);
uint64_t pack_room_empty(struct pack_segment *s);

#endif
