/* packing.h - Transfers into a packed Tier, and out of it into the Pool. */
#ifndef MONARCH_PACKING_H
#define MONARCH_PACKING_H

#include "dataplane/transfers/transfer.h"

struct packed_piece { /* of a frame, compressed */
    struct packed_codec *codec;
    const uint8_t *bytes;
    size_t length;
};

/* packing.c */
bool packing_applies(const struct engine *e, const struct transfer *t);
int packing_create(struct engine *e, struct transfer *t);
int packing_write(struct engine *e, struct transfer *t, const void *bytes, size_t n);
int packing_publish(struct engine *e, struct transfer *t);
int packing_place(struct engine *e, struct transfer *t, uint64_t row, uint64_t digest);
struct frame_head packing_head(const struct engine *e, const struct transfer *t,
                               uint32_t tier);

void packing_name(const char *replica, uint8_t out[FRAME_NAME_BYTES]);
void packing_file_name(const struct engine *e, uint32_t file,
                       uint8_t out[FRAME_NAME_BYTES]);
bool packing_is_of(const struct engine *e, uint32_t file, const uint8_t *bytes);
int packing_decode(struct engine *e, const struct packed_piece *piece, uint8_t *out,
                   size_t n);
uint32_t packing_wanted(struct engine *e, const struct transfer *t, uint32_t *tier);
void packing_give_up(struct engine *e, uint32_t file);

void packing_note(struct engine *e, uint32_t file);
bool packing_waits(const struct engine *e);
bool packing_hurries(const struct engine *e);
void packing_go_on(struct engine *e);
bool packing_next(struct engine *e, struct monarch_order *out);
void packing_undo(struct engine *e, const struct monarch_order *order);

/* repacking.c */
bool repacking_run(struct engine *e, struct transfer *t, uint8_t *buffer);
int packing_find(struct engine *e, struct transfer *t, uint64_t row, uint64_t plain);
int packing_decode_at(struct engine *e, struct transfer *t, uint32_t piece,
                      uint8_t *buffer);

#endif
