/* catalog.h - a File of the Catalog by its number: Entry, Replica name, state word,
 * mark. */
#ifndef MONARCH_CATALOG_H
#define MONARCH_CATALOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "index.h"

/* replica_word - returns the state word of a File: see STATE_WORD in layout.h. */
static inline _Atomic uint32_t *replica_word(const struct catalog *cat, uint64_t file)
{
    return (_Atomic uint32_t *)((char *)(uintptr_t)cat + cat->states) + file;
}

static inline uint32_t replica_load(const struct catalog *cat, uint64_t file)
{
    return atomic_load_explicit(replica_word(cat, file), memory_order_acquire);
}

/* file_number - returns the job-wide number of the File that an Entry of a root names. */
static inline uint64_t file_number(const struct root *root, const struct entry *e)
{
    if (__builtin_expect(e->file & FILE_SHARED, 0))
        return e->file & ~FILE_SHARED;
    return (uint64_t)root->file_base + e->file;
}

/* entry_confirmed - this job has verified the Catalog's data of a File: the index of an earlier job
 * does not show which files were rewritten in place since. */
static inline bool entry_confirmed(const struct catalog *cat, uint32_t root,
                                   const struct entry *e)
{
    const struct root *at = &cat->roots[root];
    uint64_t number = file_number(at, e);
    if (__builtin_expect(!at->provisional, 1))
        return true;
    return number < cat->file_count && (replica_load(cat, number) & STATE_CONFIRMED);
}

const struct index *catalog_block(const struct catalog *cat, uint32_t root);
const struct entry *catalog_entry(const struct catalog *cat, uint32_t file,
                                  uint32_t *root);
size_t catalog_path(const struct catalog *cat, uint32_t root, const struct entry *e,
                    char *out, size_t room);
void catalog_replica_name(const struct catalog *cat, uint32_t file,
                          char out[REPLICA_NAME_BYTES + 1]);
void replica_name(const struct entry *e, uint64_t root_hash, uint64_t path_hash,
                  char out[REPLICA_NAME_BYTES]);
bool written_load(const struct flags *flags, uint32_t root, uint32_t file);
void written_mark_inode(const struct catalog *cat, struct flags *flags, uint64_t dev,
                        uint64_t ino);

#endif
