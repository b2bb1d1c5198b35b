/* mounts.h - whether a name below a root leads to the catalogued file in this process. */
#ifndef MONARCH_MOUNTS_H
#define MONARCH_MOUNTS_H

#include "shim/names/attached.h"

enum ground { /* targets of the names below a root */
              GROUND_UNKNOWN = 0,
              GROUND_OTHER, /* the root is another directory here */
              GROUND_SAME,
              GROUND_DOUBTFUL, /* something is mounted below it: ask the kernel for each name */
              GROUND_LINKS, /* targets of links may differ: ask for each name behind one */
};

enum ground mounts_ground(const struct segments *seg, uint32_t spelling);
bool mounts_apart(const struct segments *seg, uint32_t root, int dirfd,
                  const char *path);
void mounts_moved(const struct segments *seg);

#endif
