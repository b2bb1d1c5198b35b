/* segment_builder.c - heads and arrays of the segments that test programs make. */
#include "segment_builder.h"

/* aligned_bytes - room in whole cache lines. */
size_t aligned_bytes(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* segment_head - the beginning of each segment. */
struct segment segment_head(enum segment_kind kind, size_t length)
{
    return (struct segment){.magic = "MONARCH",
                            .version = LAYOUT_VERSION,
                            .kind = kind,
                            .length = length,
                            .generation = SEGMENT_GENERATION};
}

/* flags_bytes - the length of the segment with so many marks of Files and directories. */
size_t flags_bytes(size_t marks)
{
    return sizeof(struct flags) + marks;
}

/* inodes_bytes - the length of the segment with so many slots. */
size_t inodes_bytes(size_t slots)
{
    return sizeof(struct inodes) + slots * sizeof(struct inode);
}

/* take - returns the offset of an array, and moves to its end. */
static uint64_t take(uint64_t *end, uint64_t count, size_t item_bytes)
{
    uint64_t start = *end;

    *end = aligned_bytes(start + count * item_bytes);
    return start;
}

/* index_place - puts the arrays of an index block behind its head, for the counts
 * already in the head. Returns the length of the block. */
size_t index_place(struct index *index)
{
    uint64_t end = aligned_bytes(sizeof(*index));

    index->entries = take(&end, index->entry_count, sizeof(struct entry));
    index->slots = take(&end, index->slot_count, sizeof(struct slot));
    index->inode_slots = take(&end, index->inode_slot_count, sizeof(struct slot));
    index->attrs = take(&end, index->attr_count, sizeof(struct attr));
    index->first_entry = take(&end, index->file_count, sizeof(uint32_t));
    index->arena = take(&end, index->arena_bytes, 1);
    index->seg = segment_head(SEGMENT_INDEX, end);
    index->seg.generation = 0; /* an index block belongs to no agent */
    return end;
}

static int64_t ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* entry_observe - stores the kernel's data of a name, except its attributes. */
void entry_observe(struct entry *entry, const struct stat *st)
{
    entry->ino = st->st_ino;
    entry->size = (uint64_t)st->st_size;
    entry->mtime_ns = ns(st->st_mtim);
    entry->ctime_ns = ns(st->st_ctim);
    entry->atime_ns = ns(st->st_atim);
    entry->blocks = (uint32_t)st->st_blocks;
}
