/* mark.h - written marks: a file that the program changes is never served again. */
#ifndef MONARCH_MARK_H
#define MONARCH_MARK_H

#include <sys/stat.h>

#include "shim/names/route.h"

enum change {
    CHANGE_BYTES,  /* contents of a file, through links: opens for writing, truncate */
    CHANGE_HINT,   /* the same by name: a new file may have that by now */
    CHANGE_RIGHTS, /* mode, owner, attributes */
    CHANGE_TIMES,
    CHANGE_NAME,   /* the name is removed, or leads elsewhere from now on */
    CHANGE_CREATE, /* a name that may not exist yet */
};

/* Read marks; the metadata and bytes of a written File are the origin's. */
bool mark_any(const struct segments *seg);
uint8_t mark_of(const struct segments *seg, uint32_t root, uint64_t file);
bool mark_root_seen(const struct segments *seg, uint32_t root);
bool mark_seen(const struct segments *seg, uint32_t root, const struct index *ix,
               const struct entry *e);

/* Marks by name, before the call: a hint, which may be wrong by then. */
void mark_route(const struct segments *seg, const struct route *r, enum where where,
                enum change change, bool follow);
/* Mark by identity: these marks decide. */
bool mark_object(const struct segments *seg, const struct stat *st, enum change change);
void mark_root(const struct segments *seg, uint32_t root, uint8_t bits);
void mark_freed(const struct segments *seg, uint64_t file);
void mark_file(const struct segments *seg, uint64_t file, enum change change);

/* Mark in an outline, which knows no identity but those of the roots. */
void mark_below(const struct segments *seg, uint32_t root, const struct stat *st,
                enum change change);
void mark_freed_object(const struct segments *seg, const struct stat *st);

#endif
