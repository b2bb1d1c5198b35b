/* catalog.c - finds the Entry and Replica name of a File number; reads and sets *written* marks. */
#include "catalog.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "xxh3.h"

/* catalog_block - returns the index block of a root. */
const struct index *catalog_block(const struct catalog *cat, uint32_t root)
{
    return (const void *)((const char *)cat + cat->roots[root].block);
}

/* catalog_entry - returns the first Entry of a File, and its root; NULL: no such File. */
const struct entry *catalog_entry(const struct catalog *cat, uint32_t file,
                                  uint32_t *root)
{
    uint32_t r = 0;
    if (file >= cat->file_count)
        return NULL;
    while (r + 1 < cat->root_count && cat->roots[r + 1].file_base <= file)
        r++;
    const struct index *ix = catalog_block(cat, r);
    if (file - cat->roots[r].file_base >= ix->file_count)
        return NULL;
    if (root)
        *root = r;
    return index_first(ix, file - cat->roots[r].file_base);
}

/* catalog_path - writes the absolute path of an Entry at the origin, NUL-terminated. Returns its
 * length; 0: `out` is too small. */
size_t catalog_path(const struct catalog *cat, uint32_t root, const struct entry *e,
                    char *out, size_t room)
{
    const struct index *ix = catalog_block(cat, root);
    uint64_t place = cat->roots[root].path;
    bool absolute = index_is_hop(ix, e);
    size_t head = absolute ? 0 : place & 0xffff, rel = index_path_bytes(e);
    size_t slash = !absolute && rel > 0;
    if (head + slash + rel >= room)
        return 0;
    memcpy(out, (const char *)cat + cat->strings + (place >> 16), head);
    if (slash)
        out[head] = '/';
    memcpy(out + head + slash, index_path(ix, e), rel);
    out[head + slash + rel] = 0;
    return head + slash + rel;
}

/* replica_name - writes 32 hex digits, a hash of the whole identity of a File and its root: a
 * Replica of an older version, or of another root's File, has another name. `e` names the File by
 * its first path, `path_hash` is index_hash() of that path, `root_hash` that of the root's
 * realpath. */
void replica_name(const struct entry *e, uint64_t root_hash, uint64_t path_hash,
                  char out[REPLICA_NAME_BYTES])
{
    uint64_t words[IDENTITY_WORDS + 1];
    index_identity(e, path_hash, words);
    words[IDENTITY_WORDS] = root_hash;
    for (int half = 0; half < 2; half++) {
        uint64_t h = xxh3(words, sizeof(words), (uint64_t)half);
        for (int i = 0; i < 16; i++)
            out[16 * half + i] = "0123456789abcdef"[h >> (60 - 4 * i) & 15];
    }
}

/* catalog_replica_name - writes the name of the Replica of an existing File, NUL-terminated. */
void catalog_replica_name(const struct catalog *cat, uint32_t file,
                          char out[REPLICA_NAME_BYTES + 1])
{
    uint32_t root = 0;
    const struct entry *e = catalog_entry(cat, file, &root);
    const struct index *ix = catalog_block(cat, root);
    replica_name(e, cat->roots[root].path_hash,
                 index_hash(index_path(ix, e), index_path_bytes(e)), out);
    out[REPLICA_NAME_BYTES] = 0;
}

/* written_load - whether a program has announced that it changes the File; stat may
 * show the change late on network file systems. */
bool written_load(const struct flags *flags, uint32_t root, uint32_t file)
{
    const _Atomic uint8_t *whole = (_Atomic uint8_t *)(uintptr_t)&flags->roots[root];
    const _Atomic uint8_t *own = (_Atomic uint8_t *)(uintptr_t)&flags->written[file];
    return atomic_load_explicit(whole, memory_order_acquire) ||
           atomic_load_explicit(own, memory_order_acquire);
}

/* file_of_inode - returns an Entry of the File with this inode in a block, or NULL. */
static const struct entry *file_of_inode(const struct index *ix, uint64_t dev,
                                         uint64_t ino)
{
    int64_t found = index_find_inode(ix, dev, ino);
    const struct entry *e = found < 0 ? NULL : index_entry(ix, (uint32_t)found);
    return e && S_ISREG(index_attr(ix, e)->mode) && e->file != NONE32 ? e : NULL;
}

static void mark(struct flags *flags, uint64_t number)
{
    atomic_fetch_or_explicit((_Atomic uint8_t *)&flags->written[number],
                             MARKED | MARKED_BYTES, memory_order_release);
    atomic_store_explicit((_Atomic uint32_t *)&flags->marked, 1, memory_order_release);
}

/* written_mark_inode - marks the File with this inode in each root that contains it: no
 * program opens its Replica from now on. All its hard links are that one File. */
void written_mark_inode(const struct catalog *cat, struct flags *flags, uint64_t dev,
                        uint64_t ino)
{
    for (uint32_t i = 0; i < cat->root_count; i++) {
        const struct entry *e = file_of_inode(catalog_block(cat, i), dev, ino);
        uint64_t number = e ? file_number(&cat->roots[i], e) : flags->count;

        if (number < flags->count)
            mark(flags, number);
    }
}
