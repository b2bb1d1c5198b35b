/* packed_extents.h - Extents of large Files in packed Tiers. */
#ifndef MONARCH_PACKED_EXTENTS_H
#define MONARCH_PACKED_EXTENTS_H

#include "dataplane/extents/packs.h"
#include "dataplane/extents/partial.h"

enum { PIECE_BLOCKS = PIECE_BYTES / BLOCK_BYTES }; /* of a frame */

/* The callers of the second to fourth function hold the lock of the partial Replicas. */
bool extent_is_packed(struct partials *parts, uint32_t file, uint32_t extent);
bool extent_goes_packed(struct partials *parts, const struct partial *p,
                        uint32_t extent);
void extent_arrived(struct partials *parts, struct partial *p, uint32_t extent);
void extents_forget(struct partials *parts, const struct partial *p);
bool extent_begin_packing(struct partials *parts, const struct to_pack *one,
                          struct monarch_order *out);
void extent_packing_undo(struct partials *parts, const struct monarch_order *order);
void extent_packing_end(struct partials *parts, struct partial *p, uint32_t extent);
void extent_claim_piece(struct partials *parts, struct partial *p,
                        struct page_run piece, struct page_run asked,
                        uint64_t out[PIECE_BLOCKS]);
bool extent_keep_digests(struct packs *p, uint64_t row, const uint64_t *digests,
                         uint32_t blocks);
const uint64_t *extent_digests(const struct partials *parts, uint32_t file,
                               uint32_t extent);
void extents_restore(struct partials *parts, struct partial *p);

#endif
