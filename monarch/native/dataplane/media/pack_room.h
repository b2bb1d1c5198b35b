/* pack_room.h - what the frames of a segment take of its medium. */
#ifndef MONARCH_PACK_ROOM_H
#define MONARCH_PACK_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct pack_segment {
    int fd;
    uint32_t tier;
    uint64_t bytes; /* where the next frame is written */
    uint64_t held;  /* of frames that Files have */
    uint64_t room;  /* that it takes: its frames and holes, without pages given back */
    uint32_t pending; /* frames that are being written */
    bool dropped;     /* it is empty, and can be begun again */
    bool rounded;     /* a page is reserved for it, see table_round_pack() */
    bool stuck;       /* it could not be compacted; until its next frame dies */
    uint16_t *dead;   /* per page: bytes of it that no File has; NULL: none died */
};

uint64_t pack_room_free_orphan(struct pack_segment *s, uint64_t offset, uint64_t bytes);
uint64_t pack_room_empty(struct pack_segment *s);

#endif
