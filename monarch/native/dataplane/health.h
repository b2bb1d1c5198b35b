/* health.h - whether the origin of each root still answers. */
#ifndef MONARCH_HEALTH_H
#define MONARCH_HEALTH_H

#include "dataplane/engine.h"

void health_note_step(struct engine *e, struct transfer *t);
size_t health_piece(const struct engine *e, const struct transfer *t, size_t n);
void health_note_chunk(struct engine *e, const struct transfer *t, uint64_t ns);
void health_watch(struct engine *e);

#endif
