/* extent_packing.h - Transfers of Extents of large Files into packed Tiers, and out of them. */
#ifndef MONARCH_EXTENT_PACKING_H
#define MONARCH_EXTENT_PACKING_H

#include "dataplane/transfers/transfer.h"

void extent_decode_order(const struct transfers *ts, struct monarch_order *order);

#endif
