/* flight.h - one File on its way from a peer into a Tier. */
#ifndef MONARCH_FLIGHT_H
#define MONARCH_FLIGHT_H

#include "dataplane/peer_client.h"

int flight_begin(struct receiver *r, struct flight *f,
                 const struct monarch_fetch *order, uint64_t now);
int flight_extent(struct receiver *r, struct flight *f, const struct frame_reply *head);
int flight_chunk(struct receiver *r, struct flight *f, const uint8_t *bytes, size_t n);
int flight_landed(struct receiver *r, struct flight *f, const struct frame_reply *head);
void flight_end(struct receiver *r, struct flight *f, int status);

#endif
