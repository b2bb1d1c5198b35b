/* extent_packing.h - Extents of large Files in packed Tiers. */
#ifndef MONARCH_EXTENT_PACKING_H
#define MONARCH_EXTENT_PACKING_H

#include "dataplane/extents/partial.h"

/* extent_packing.c */
bool extent_packing_run(struct engine *e, struct transfer *t, uint8_t *buffer);
void extent_decode_order(const struct engine *e, struct monarch_order *order);

/* packed_extents.c; the callers of the next four but the first hold the lock of the partial
 * Replicas */
bool extent_is_packed(struct engine *e, uint32_t file, uint32_t extent);
bool extent_goes_packed(struct engine *e, const struct partial *p, uint32_t extent);
void extent_came(struct engine *e, struct partial *p, uint32_t extent);
void extents_forget(struct engine *e, const struct partial *p);
void extent_forget(struct engine *e, uint32_t file, uint32_t extent);
bool extents_wait(const struct engine *e);
bool extent_next(struct engine *e, struct monarch_order *out);
void extent_packing_undo(struct engine *e, const struct monarch_order *order);
void extent_packing_end(struct engine *e, struct partial *p, uint32_t extent);
uint32_t extent_claim_piece(struct engine *e, struct partial *p, struct block_run piece,
                            struct block_run asked);
bool extent_keep_digests(struct packs *p, uint64_t row, const uint64_t *digests,
                         uint32_t blocks);
const uint64_t *extent_digests(const struct engine *e, uint32_t file, uint32_t extent);
uint32_t extent_packing_wanted(struct engine *e, uint32_t file, uint32_t *tier);
void extents_restore(struct engine *e, struct partial *p);

#endif
