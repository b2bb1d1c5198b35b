/* segment_builder.h - heads and arrays of the segments that test programs make. */
#ifndef SEGMENT_BUILDER_H
#define SEGMENT_BUILDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "shared/layout.h"

enum { SEGMENT_GENERATION = 42 };

size_t aligned_bytes(size_t bytes);
struct segment segment_head(enum segment_kind kind, size_t length);
size_t flags_bytes(size_t marks);
size_t inodes_bytes(size_t slots);
size_t index_place(struct index *index);
void entry_observe(struct entry *entry, const struct stat *st);

#endif
