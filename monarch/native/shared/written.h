/* written.h - marking a File *written* by the inode that it is. */
#ifndef MONARCH_WRITTEN_H
#define MONARCH_WRITTEN_H

#include <stdint.h>

#include "layout.h"

void written_mark_inode(const struct catalog *cat, struct flags *flags, uint64_t dev,
                        uint64_t ino);

#endif
