/* packing.h - Transfers into a packed Tier, and out of it into the Pool. */
#ifndef MONARCH_PACKING_H
#define MONARCH_PACKING_H

#include <errno.h>

#include "dataplane/transfers/transfer.h"

struct packed_piece { /* of a frame, compressed */
    struct packed_codec *codec;
    const uint8_t *bytes;
    size_t length;
};

/* packing.c */
bool packing_applies(const struct transfers *ts, const struct transfer *t);
int packing_create(struct transfer *t);
int packing_write(struct transfers *ts, struct transfer *t, const void *bytes,
                  size_t n);
int packing_publish(struct transfers *ts, struct transfer *t);
int packing_commit(struct transfers *ts, struct transfer *t, uint64_t digest);
struct frame_head packing_head(const struct transfers *ts, const struct transfer *t,
                               uint32_t tier);

int packing_decode(struct transfers *ts, const struct packed_piece *piece, uint8_t *out,
                   size_t n);
uint32_t packing_wanted(struct transfers *ts, const struct transfer *t, uint32_t *tier);

void packing_note(struct transfers *ts, uint32_t file);
bool packing_has_pending(const struct transfers *ts);
bool packing_lacks_room(const struct transfers *ts, bool extents);
bool packing_hurries(const struct transfers *ts);
void packing_resume(struct transfers *ts);
bool packing_next(struct transfers *ts, struct monarch_order *out);
void packing_undo(struct transfers *ts, const struct monarch_order *order);
void packing_decode_order(const struct transfers *ts, struct monarch_order *order);

/* pool_packing.c: also for the routes out of the Tier */
int packing_check(struct transfers *ts, struct transfer *t, uint8_t *buffer);
void packing_leave(struct transfers *ts, struct transfer *t);

/* packing_found_no_room - packing_commit() has returned that the frame does not fit. */
static inline bool packing_found_no_room(const struct transfer *t, int rc)
{
    return rc == -ENOSPC && t->step == MONARCH_STEP_PUBLISH;
}

#endif
