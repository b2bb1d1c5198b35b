/* index.h - look-ups in an index block; no allocation, no lock, safe in any process.
 *
 * Links that leave the root add two kinds of Entries to those of names:
 *
 *   outer  the target of such a link, if that is no name of the dataset. Its path is that of
 *          the link, below which its own names are names of the dataset
 *   hop    a directory or link outside the root that such a link passes. Its path is absolute.
 *          Those that hold a target come first */
#ifndef MONARCH_INDEX_H
#define MONARCH_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "layout.h"

static inline const struct entry *index_entry(const struct index *ix, uint32_t number)
{
    return (const struct entry *)((const char *)ix + ix->entries) + number;
}

static inline const struct attr *index_attr(const struct index *ix,
                                            const struct entry *e)
{
    return (const struct attr *)((const char *)ix + ix->attrs) + e->attr;
}

static inline const char *index_path(const struct index *ix, const struct entry *e)
{
    return (const char *)ix + ix->arena + (e->path >> 16);
}

static inline size_t index_path_bytes(const struct entry *e)
{
    return e->path & 0xffff;
}

/* index_number - returns the position of an Entry in its block. */
static inline uint32_t index_number(const struct index *ix, const struct entry *e)
{
    return (uint32_t)(e - index_entry(ix, 0));
}

/* index_is_hop - the path of the Entry is absolute. */
static inline bool index_is_hop(const struct index *ix, const struct entry *e)
{
    return index_number(ix, e) >= ix->name_count + ix->outer_count;
}

/* index_is_outer - the Entry is the target of a link: its path has to be followed. */
static inline bool index_is_outer(const struct index *ix, const struct entry *e)
{
    return index_number(ix, e) >= ix->name_count && !index_is_hop(ix, e);
}

/* index_leaves - links of this root lead outside. */
static inline bool index_leaves(const struct index *ix)
{
    return ix->entry_count > ix->name_count;
}

/* index_first - returns the first Entry (in path order) that names a File of this block. */
static inline const struct entry *index_first(const struct index *ix, uint32_t file)
{
    const uint32_t *first = (const uint32_t *)((const char *)ix + ix->first_entry);
    return index_entry(ix, first[file]);
}

/* index_listed - all names of this directory are Entries. */
static inline bool index_listed(const struct index *ix, uint32_t directory)
{
    return index_entry(ix, directory)->target != NONE32;
}

/* index_home - scales the high half of a hash to a table of any size (Lemire 2016). */
static inline uint32_t index_home(uint64_t hash, uint32_t count)
{
    return (uint32_t)((hash >> 32) * count >> 32);
}

enum { IDENTITY_WORDS = 5 };

void index_identity(const struct entry *e, uint64_t path_hash,
                    uint64_t out[IDENTITY_WORDS]);
uint64_t index_hash(const char *rel, size_t n);
int64_t index_find(const struct index *ix, const char *rel, size_t n);
int64_t index_find_hashed(const struct index *ix, const char *rel, size_t n,
                          uint64_t hash);
int64_t index_find_inode(const struct index *ix, uint64_t dev, uint64_t ino);
int64_t index_find_directory(const struct index *ix, uint64_t dev, uint64_t ino);
uint32_t index_listed_at(const struct index *ix, uint32_t directory, uint64_t *place);
int index_finish(struct index *ix, size_t length);
int index_check(const struct index *ix, size_t length);

#endif
