/* stat.h - the metadata that the Catalog can tell of a path. */
#ifndef MONARCH_STAT_H
#define MONARCH_STAT_H

#include "route.h"

const struct entry *stat_look(int dirfd, const char *path, bool follow,
                              struct route *r);

#endif
