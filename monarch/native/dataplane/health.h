/* health.h - whether the origin of each root still answers. */
#ifndef MONARCH_HEALTH_H
#define MONARCH_HEALTH_H

#include "dataplane/engine.h"

void health_note_step(struct engine *e, struct transfer *t);
void health_watch(struct engine *e);

#endif
