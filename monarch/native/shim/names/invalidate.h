/* invalidate.h - marks the files that a call changes, however the caller has spelled them. */
#ifndef MONARCH_INVALIDATE_H
#define MONARCH_INVALIDATE_H

#include "shim/names/mark.h"

void invalidate_path(const struct segments *seg, int dirfd, const char *path,
                     enum change change, bool follow);
void invalidate_object(const struct segments *seg, int dirfd, const char *path,
                       const struct stat *st, enum change change);
void invalidate_descriptor(const struct segments *seg, int fd, enum change change);
void invalidate_new(const struct segments *seg, int fd, const struct stat *st);
void invalidate_gone(const struct segments *seg, int dirfd, const char *path,
                     int result);
void invalidate_freed(const struct segments *seg, const struct stat *st);
void invalidate_created(const struct segments *seg, int dirfd, const char *path,
                        int result);
bool invalidate_if_writable(const struct segments *seg, int fd);
bool invalidate_inherited(const struct segments *seg);
void invalidate_mapped(const struct segments *seg);
void invalidate_view(const struct segments *seg);

#endif
