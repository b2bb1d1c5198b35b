/* invalidate.h - marks what a call changes, however the caller has spelled it. */
#ifndef MONARCH_INVALIDATE_H
#define MONARCH_INVALIDATE_H

#include "mark.h"

void invalidate_path(int dirfd, const char *path, enum change change, bool follow);
void invalidate_object(const struct segments *seg, int dirfd, const char *path,
                       const struct stat *st, enum change change);
void invalidate_descriptor(const struct segments *seg, int fd, enum change change);
void invalidate_new(const struct segments *seg, int fd, const struct stat *st);
void invalidate_gone(int dirfd, const char *path, int result);
void invalidate_freed(const struct stat *st);
void invalidate_created(int dirfd, const char *path, int result);
void invalidate_if_writable(int fd);
void invalidate_inherited(void);
void invalidate_mapped(void);
void invalidate_view(void);

#endif
