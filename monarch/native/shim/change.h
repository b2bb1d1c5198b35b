/* change.h - calls on attributes: marked, and led to the origin's file. */
#ifndef MONARCH_CHANGE_H
#define MONARCH_CHANGE_H

#include "mark.h"

const char *change_path(char out[PATH_BYTES_MAX], int dirfd, const char *path,
                        enum change change);
const char *change_descriptor(char out[PATH_BYTES_MAX], int fd, enum change change);

#endif
