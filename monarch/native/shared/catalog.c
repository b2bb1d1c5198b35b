/* catalog.c - from a File number to its Entry, its Replica's name and its mark. */
#include "catalog.h"

#include <stdatomic.h>
#include <stddef.h>

#include "replica_table.h"

/* lookup_block - the index block of a root. */
const struct index *lookup_block(const struct catalog *cat, uint32_t root)
{
    return (const void *)((const char *)cat + cat->roots[root].block);
}

/* lookup_entry - the first Entry of a File, and its root; NULL: no such File. */
const struct entry *lookup_entry(const struct catalog *cat, uint32_t file,
                                 uint32_t *root)
{
    uint32_t r = 0;
    if (file >= cat->file_count)
        return NULL;
    while (r + 1 < cat->root_count && cat->roots[r + 1].file_base <= file)
        r++;
    const struct index *ix = lookup_block(cat, r);
    if (file - cat->roots[r].file_base >= ix->file_count)
        return NULL;
    if (root)
        *root = r;
    return index_first(ix, file - cat->roots[r].file_base);
}

/* lookup_name - the name of the Replica of a File that there is, NUL-terminated. */
void lookup_name(const struct catalog *cat, uint32_t file,
                 char out[REPLICA_NAME_BYTES + 1])
{
    uint32_t root = 0;
    const struct entry *e = lookup_entry(cat, file, &root);
    const struct index *ix = lookup_block(cat, root);
    replica_name(e, cat->roots[root].path_hash,
                 index_hash(index_path(ix, e), index_path_bytes(e)), out);
    out[REPLICA_NAME_BYTES] = 0;
}

/* lookup_written - a program has announced that it changes the File; its own stat may
 * show that late on network file systems. */
bool lookup_written(const struct flags *flags, uint32_t root, uint32_t file)
{
    const _Atomic uint8_t *whole = (_Atomic uint8_t *)(uintptr_t)&flags->roots[root];
    const _Atomic uint8_t *own = (_Atomic uint8_t *)(uintptr_t)&flags->written[file];
    return atomic_load_explicit(whole, memory_order_acquire) ||
           atomic_load_explicit(own, memory_order_acquire);
}
