/* invalidate.h - marks what a call changes, however the caller has spelled it. */
#ifndef MONARCH_INVALIDATE_H
#define MONARCH_INVALIDATE_H

#include "mark.h"

void trace_path(int dirfd, const char *path, enum change change, bool follow);
void trace_object(const struct board *b, int dirfd, const char *path,
                  const struct stat *st, enum change change);
void trace_descriptor(const struct board *b, int fd, enum change change);
void trace_new(const struct board *b, int fd, const struct stat *st);
void trace_gone(int dirfd, const char *path, int result);
void trace_freed(const struct stat *st);
void trace_created(int dirfd, const char *path, int result);
void trace_if_writable(int fd);
void trace_inherited(void);
void trace_mapped(void);
void trace_view(void);

#endif
