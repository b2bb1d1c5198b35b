/* attached.h - the segments from which this process serves, and those in which it marks. */
#ifndef MONARCH_ATTACH_H
#define MONARCH_ATTACH_H

#include "shim/names/segments.h"

const struct segments *attach_for_serving(void);
const struct segments *attach_for_marking(void);
void detach(void);
const struct segments *attached_segments(void);

#endif
