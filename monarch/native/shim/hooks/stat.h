/* stat.h - the metadata of a path, as far as the Catalog holds it. */
#ifndef MONARCH_STAT_H
#define MONARCH_STAT_H

#include "shim/names/route.h"

const struct entry *stat_look(int dirfd, const char *path, bool follow, struct route *r,
                              bool *absent);

#endif
