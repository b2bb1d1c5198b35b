/* directories.h - the names in a directory by the Catalog, while that is up to date. */
#ifndef MONARCH_DIRECTORIES_H
#define MONARCH_DIRECTORIES_H

#include "shim/names/route.h"

struct directory { /* one that is catalogued */
    const struct segments *seg;
    const struct index *ix;
    uint32_t root;
    uint32_t entry;
};

bool directory_of(const struct segments *seg, int fd, struct directory *out);
bool directory_holds(const struct directory *at, int fd);
bool directory_current(const struct directory *at, int fd);
bool directory_stale(const struct segments *seg, uint32_t root, const struct entry *e);
bool directory_unchanged(const struct segments *seg, uint32_t root,
                         const struct index *ix, const struct entry *e);
void directory_prepare(const struct segments *seg, int dirfd, const char *path);
bool directory_lacks(const struct segments *seg, const struct route *r);
bool directory_lacks_at(const struct segments *seg, int dirfd, const char *path,
                        int flags);

#endif
