/* mark.h - written marks: what the program changes is never served again. */
#ifndef MONARCH_MARK_H
#define MONARCH_MARK_H

#include "route.h"

enum change {
    CHANGE_BYTES,  /* contents of a file, through links: opens for writing, truncate */
    CHANGE_RIGHTS, /* mode, owner, attributes */
    CHANGE_TIMES,
    CHANGE_NAME,   /* the name goes, or means something else from now on */
    CHANGE_CREATE, /* a name that may not be there yet */
};

/* What a route's mark says; a written File's metadata and bytes are the origin's. */
bool mark_seen(const struct board *b, uint32_t root, const struct index *ix,
               const struct entry *e);

bool mark_tells(const struct route *r, enum where where);
void mark_path(int dirfd, const char *path, enum change change, bool follow);
void mark_created(int dirfd, const char *path, int result);
void mark_route(const struct board *b, const struct route *r, enum where where,
                enum change change, bool follow);
void mark_descriptor(const struct board *b, int fd, enum change change);
void mark_root(const struct board *b, uint32_t root);
void mark_file(const struct board *b, uint64_t file);

#endif
