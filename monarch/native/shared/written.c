/* written.c - marking a File *written* by the inode that it is. */
#include "written.h"

#include <stdatomic.h>
#include <sys/stat.h>

#include "index.h"

/* find_file - the File of a block with this inode, or NONE32. */
static uint32_t find_file(const struct index *ix, uint64_t dev, uint64_t ino)
{
    int64_t found = index_find_inode(ix, dev, ino);
    if (found < 0)
        return NONE32;
    const struct entry *e = index_entry(ix, (uint32_t)found);
    return S_ISREG(index_attr(ix, e)->mode) ? e->file : NONE32;
}

static void set(struct flags *flags, uint64_t number)
{
    atomic_fetch_or_explicit((_Atomic uint8_t *)&flags->written[number],
                             MARKED | MARKED_BYTES, memory_order_release);
    atomic_store_explicit((_Atomic uint32_t *)&flags->marked, 1, memory_order_release);
}

/* written_mark_inode - marks the File with this inode in each root that holds it: no
 * program opens its Replica from now on. All its hard links are that one File. */
void written_mark_inode(const struct catalog *cat, struct flags *flags, uint64_t dev,
                        uint64_t ino)
{
    for (uint32_t i = 0; i < cat->root_count; i++) {
        const struct root *root = &cat->roots[i];
        const struct index *ix = (const struct index *)((const char *)cat +
                                                        root->block);
        uint32_t file = find_file(ix, dev, ino);
        uint64_t number = (uint64_t)root->file_base + file;

        if (file != NONE32 && number < flags->count)
            set(flags, number);
    }
}
