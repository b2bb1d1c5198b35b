/* test_index.c - an index block finds its contents, and nothing else. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "index.h"

enum { NAMES = 5000, INDEX_BYTES = 2 << 20, TRIALS = 2000 };

static _Alignas(64) unsigned char block[INDEX_BYTES];

static size_t rel_name(uint32_t i, char out[64])
{
    return i == 0 ? 0
                  : (size_t)snprintf(out, 64, "train/n%04u/img_%07u.jpg", i % 97, i);
}

/* lay_out - reserves room for the arrays behind the header, as a builder would. */
static struct index *lay_out(void)
{
    struct index *ix = (struct index *)block;
    memset(block, 0, sizeof(block));
    memcpy(ix->seg.magic, "MONARCH", 8);
    ix->seg.version = LAYOUT_VERSION;
    ix->seg.kind = SEGMENT_INDEX;
    ix->entry_count = ix->name_count = NAMES;
    ix->file_count = NAMES - 1;
    ix->dir_count = 1;
    ix->attr_count = 2;
    ix->slot_count = NAMES * 10 / 7;
    ix->inode_slot_count = NAMES * 5 / 3 + 1;
    uint64_t at = (sizeof(*ix) + 63) / 64 * 64;
    ix->entries = at;
    ix->slots = at += NAMES * sizeof(struct entry);
    ix->inode_slots = at += (ix->slot_count * sizeof(struct slot) + 7) / 8 * 8;
    ix->attrs = at += (ix->inode_slot_count * sizeof(struct slot) + 7) / 8 * 8;
    ix->first_entry = at += 2 * sizeof(struct attr);
    ix->arena = at += ((NAMES - 1) * sizeof(uint32_t) + 7) / 8 * 8;
    return ix;
}

static size_t build(void)
{
    struct index *ix = lay_out();
    struct attr *attrs = (struct attr *)(block + ix->attrs);
    struct entry *entries = (struct entry *)(block + ix->entries);
    uint32_t *first = (uint32_t *)(block + ix->first_entry);
    attrs[0] = (struct attr){.mode = S_IFDIR | 0755, .dev = 7};
    attrs[1] = (struct attr){.mode = S_IFREG | 0644, .dev = 7};
    for (uint32_t i = 0; i < NAMES; i++) {
        size_t n = rel_name(i, (char *)block + ix->arena + ix->arena_bytes);
        entries[i] = (struct entry){.ino = 100 + i,
                                    .path = ix->arena_bytes << 16 | n,
                                    .file = i ? i - 1 : 0,
                                    .attr = i != 0,
                                    .target = i};
        if (i)
            first[i - 1] = i;
        ix->arena_bytes += n;
    }
    ix->seg.length = ix->arena + ix->arena_bytes;
    CHECK(ix->seg.length <= INDEX_BYTES);
    return ix->seg.length;
}

static void finds_every_path_and_no_other(const struct index *ix)
{
    char name[64];
    for (uint32_t i = 0; i < NAMES; i++)
        CHECK(index_find(ix, name, rel_name(i, name)) == i);
    for (uint32_t i = NAMES; i < 4 * NAMES; i++)
        CHECK(index_find(ix, name, rel_name(i, name)) == -1);
    CHECK(index_find(ix, "train", 5) == -1);
    for (uint32_t i = 0; i < NAMES; i++)
        CHECK(index_find_inode(ix, 7, 100 + i) == i);
    for (uint64_t ino = 100 + NAMES; ino < 100 + 4 * NAMES; ino++)
        CHECK(index_find_inode(ix, 7, ino) == -1);
    CHECK(index_find_inode(ix, 8, 101) == -1);
    CHECK(index_find_directory(ix, 7, 100) == 0);
    CHECK(index_find_directory(ix, 7, 101) == -1);
    CHECK(index_find_directory(ix, 8, 100) == -1);
}

static void refuses_a_path_that_stands_twice(size_t length)
{
    struct index *ix = (struct index *)block;
    struct entry *entries = (struct entry *)(block + ix->entries);
    uint64_t kept = entries[9].path;
    entries[9].path = entries[8].path;
    CHECK(index_finish(ix, length) == -EEXIST);
    entries[9].path = kept;
    CHECK(index_finish(ix, length) == 0);
}

/* survives_any_damage - a block with a right digest but wrong bytes is refused, or else
 * lookups do not leave it (the sanitizer watches). */
static void survives_any_damage(size_t length, int trials)
{
    struct index *ix = (struct index *)block;
    unsigned char *copy = malloc(length);
    CHECK(copy);
    uint32_t random = 12345;
    for (int trial = 0; trial < trials; trial++) {
        memcpy(copy, block, length);
        random = random * 1103515245u + 12345u;
        size_t where = trial % 2 ? random % sizeof(struct index) : random % length;
        copy[where] ^= (unsigned char)(1u << (random >> 29));
        struct index *broken = (struct index *)copy;
        CHECK(index_check(broken, length) != 0 || where < sizeof(struct index));
        if (index_finish(broken, length) == 0 && index_check(broken, length) == 0)
            CHECK(index_find(broken, "train/n0001/img_0000001.jpg", 27) < NAMES &&
                  index_find_inode(broken, 7, 100 + where) < NAMES);
    }
    CHECK(index_check(ix, length) == 0);
    free(copy);
}

int main(int argc, char **argv)
{
    size_t length = build();
    struct index *ix = (struct index *)block;
    CHECK(index_finish(ix, length) == 0);
    CHECK(index_check(ix, length) == 0);
    CHECK(index_check(ix, length - 1) == -EINVAL);
    finds_every_path_and_no_other(ix);
    refuses_a_path_that_stands_twice(length);
    survives_any_damage(length, argc > 1 ? atoi(argv[1]) : TRIALS);
    return 0;
}
