/* extent.h - what is computed of an Extent while its bytes pass: checksum and seal. */
#ifndef MONARCH_EXTENT_H
#define MONARCH_EXTENT_H

#include "dataplane/transfer.h"

int extent_begin(struct engine *e, struct transfer *t, const struct monarch_seal *told);
int extent_add(struct engine *e, struct transfer *t, const void *bytes, size_t n);
int extent_end(struct transfer *t);
void extent_keep(struct engine *e, struct transfer *t);
struct monarch_seal extent_seal(struct engine *e, uint64_t place);

#endif
