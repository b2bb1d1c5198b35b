/* segments.h - the segments of a run directory, in the memory of this process. */
#ifndef MONARCH_SEGMENTS_H
#define MONARCH_SEGMENTS_H

#include "attach.h"

bool segments_map(struct board *b);
void segments_unmap(struct board *b);
void segments_order(struct board *b);
const char *segments_path(const struct board *b, const char *name,
                          char out[PATH_BYTES_MAX]);

#endif
