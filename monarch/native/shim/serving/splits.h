/* splits.h - opens with O_TRUNC that are split into an open and a truncation. */
#ifndef MONARCH_SPLITS_H
#define MONARCH_SPLITS_H

#include "shim/serving/redirects.h"

bool splits_flags(int flags);
uint64_t splits_parent(int dirfd, const char *path);
bool splits_below(uint64_t parent);
void splits_forget(uint64_t parent);
void splits_learn(uint64_t parent, int fd, const struct stat *st);

#endif
