/* attached.h - which segments this process serves from, and in which it marks. */
#ifndef MONARCH_ATTACH_H
#define MONARCH_ATTACH_H

#include "shim/names/segments.h"

const struct segments *attach_for_serving(void);
const struct segments *attach_for_marking(void);
void detach(void);
const struct segments *attached_segments(void);

#endif
