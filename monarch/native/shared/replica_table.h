/* replica_table.h - Replicas as all parts see them: name, state word, inode. */
#ifndef MONARCH_REPLICA_TABLE_H
#define MONARCH_REPLICA_TABLE_H

#include <stdatomic.h>

#include "index.h"

static inline _Atomic uint32_t *replica_word(const struct catalog *cat, uint64_t file)
{
    return (_Atomic uint32_t *)((char *)(uintptr_t)cat + cat->states) + file;
}

static inline uint32_t replica_load(const struct catalog *cat, uint64_t file)
{
    return atomic_load_explicit(replica_word(cat, file), memory_order_acquire);
}

void replica_name(const struct entry *e, uint64_t root_hash, uint64_t path_hash,
                  char out[REPLICA_NAME_BYTES]);
int replica_insert(struct inodes *table, uint32_t tier, uint64_t ino, uint32_t file);
void replica_keep(struct inodes *table, uint32_t tier, uint64_t ino);
void replica_remove(struct inodes *table, uint32_t tier, uint64_t ino);
int64_t replica_find(const struct inodes *table, uint32_t tier, uint64_t ino);

#endif
