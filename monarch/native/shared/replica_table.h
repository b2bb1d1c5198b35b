/* replica_table.h - finds the File of a Replica by its inode, in any process. */
#ifndef MONARCH_REPLICA_TABLE_H
#define MONARCH_REPLICA_TABLE_H

#include "layout.h"

int replica_insert(struct inodes *table, uint32_t tier, uint64_t ino, uint32_t file);
void replica_keep(struct inodes *table, uint32_t tier, uint64_t ino);
void replica_remove(struct inodes *table, uint32_t tier, uint64_t ino);
int64_t replica_find(const struct inodes *table, uint32_t tier, uint64_t ino);

#endif
