/* index.c - the hash tables of an index block: filled once, looked up without a
 * lock. */
#include "index.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "xxh3.h"

/* home - scales the high half of a hash to a table of any size (Lemire 2016). */
static uint32_t home(uint64_t hash, uint32_t count)
{
    return (uint32_t)((hash >> 32) * count >> 32);
}

/* inode_hash - mixes an inode number (Stafford 2011, variant 13). */
static uint64_t inode_hash(uint64_t ino)
{
    ino = (ino ^ ino >> 30) * 0xbf58476d1ce4e5b9u;
    ino = (ino ^ ino >> 27) * 0x94d049bb133111ebu;
    return ino ^ ino >> 31;
}

/* index_hash - the hash of a root-relative path; names of Replicas contain it too. */
uint64_t index_hash(const char *rel, size_t n)
{
    return xxh3(rel, n, 0);
}

/* index_identity - the identity of a File below its root: `e` is its first Entry,
 * `path_hash` the index_hash() of its path. */
void index_identity(const struct entry *e, uint64_t path_hash,
                    uint64_t out[IDENTITY_WORDS])
{
    out[0] = path_hash;
    out[1] = e->ino;
    out[2] = e->size;
    out[3] = (uint64_t)e->mtime_ns;
    out[4] = (uint64_t)e->ctime_ns;
}

static bool same_path(const struct index *ix, const struct entry *e, const char *rel,
                      size_t n)
{
    return index_path_bytes(e) == n && memcmp(index_path(ix, e), rel, n) == 0;
}

/* index_find_hashed - the Entry of a root-relative path whose hash is known, or -1. */
int64_t index_find_hashed(const struct index *ix, const char *rel, size_t n,
                          uint64_t hash)
{
    const struct slot *slots = (const struct slot *)((const char *)ix + ix->slots);
    uint32_t i = home(hash, ix->slot_count);
    while (slots[i].entry) {
        uint32_t number = slots[i].entry - 1;
        if (slots[i].tag == (uint32_t)hash &&
            same_path(ix, index_entry(ix, number), rel, n))
            return number;
        i = i + 1 == ix->slot_count ? 0 : i + 1;
    }
    return -1;
}

/* index_find - the Entry of a root-relative path, or -1. */
int64_t index_find(const struct index *ix, const char *rel, size_t n)
{
    return index_find_hashed(ix, rel, n, index_hash(rel, n));
}

static const struct slot *inode_slots(const struct index *ix)
{
    return (const struct slot *)((const char *)ix + ix->inode_slots);
}

/* index_find_inode - the first Entry with this identity, of whatever type, or -1. */
int64_t index_find_inode(const struct index *ix, uint64_t dev, uint64_t ino)
{
    const struct slot *slots = inode_slots(ix);
    uint64_t hash = inode_hash(ino);
    uint32_t i = home(hash, ix->inode_slot_count);
    while (slots[i].entry) {
        if (slots[i].tag == (uint32_t)hash) {
            const struct entry *e = index_entry(ix, slots[i].entry - 1);
            if (e->ino == ino && index_attr(ix, e)->dev == dev)
                return slots[i].entry - 1;
        }
        i = i + 1 == ix->inode_slot_count ? 0 : i + 1;
    }
    return -1;
}

/* index_find_directory - the Entry of the directory with this identity, or -1. */
int64_t index_find_directory(const struct index *ix, uint64_t dev, uint64_t ino)
{
    int64_t found = index_find_inode(ix, dev, ino);
    if (found >= 0 && !S_ISDIR(index_attr(ix, index_entry(ix, (uint32_t)found))->mode))
        return -1;
    return found;
}

/* before - the path of an Entry sorts before `head` with this character behind it. */
static bool before(const struct index *ix, uint32_t number, const char *head, size_t n,
                   char last)
{
    const struct entry *e = index_entry(ix, number);
    const char *path = index_path(ix, e);
    size_t own = index_path_bytes(e);
    int order = memcmp(path, head, own < n ? own : n);
    if (order)
        return order < 0;
    return own <= n || (unsigned char)path[n] < (unsigned char)last;
}

/* first_from - the first Entry, from this number on, that does not sort before a path. Steps
 * that double, and then halve, touch few Entries where it is near. */
static uint32_t first_from(const struct index *ix, uint32_t from, const char *head,
                           size_t n, char last)
{
    uint64_t step = 1, low = from, high = ix->entry_count;
    while (low + step < high && before(ix, (uint32_t)(low + step), head, n, last)) {
        low += step;
        step *= 2;
    }
    if (low + step < high)
        high = low + step;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (before(ix, (uint32_t)middle, head, n, last))
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* index_child - the first name in a directory whose Entry has this number or a higher one;
 * NONE32: there is none. What lies below a name in the directory sorts between its
 * names, and is passed over. */
uint32_t index_child(const struct index *ix, uint32_t directory, uint32_t from)
{
    const struct entry *at = index_entry(ix, directory);
    const char *head = index_path(ix, at);
    size_t n = index_path_bytes(at);
    if (from <= directory)
        from = n ? first_from(ix, directory + 1, head, n, '/') : directory + 1;
    while (from < ix->entry_count) {
        const struct entry *e = index_entry(ix, from);
        const char *path = index_path(ix, e);
        size_t bytes = index_path_bytes(e), name = n ? n + 1 : 0;
        if (bytes <= name || memcmp(path, head, n) != 0 || (n && path[n] != '/'))
            break;
        const char *slash = memchr(path + name, '/', bytes - name);
        if (!slash)
            return from;
        from = first_from(ix, from + 1, path, (size_t)(slash - path), '/' + 1);
    }
    return NONE32;
}

/* insert_path - inserts one Entry into the path table; -EEXIST: its path exists. */
static int insert_path(struct index *ix, uint32_t number)
{
    struct slot *slots = (struct slot *)((char *)ix + ix->slots);
    const struct entry *e = index_entry(ix, number);
    const char *rel = index_path(ix, e);
    uint64_t hash = index_hash(rel, index_path_bytes(e));
    if (index_find_hashed(ix, rel, index_path_bytes(e), hash) >= 0)
        return -EEXIST;
    uint32_t i = home(hash, ix->slot_count);
    while (slots[i].entry)
        i = i + 1 == ix->slot_count ? 0 : i + 1;
    slots[i] = (struct slot){.tag = (uint32_t)hash, .entry = number + 1};
    return 0;
}

/* insert_inode - inserts the first Entry of each inode: the others name the same
 * file. */
static void insert_inode(struct index *ix, uint32_t number)
{
    struct slot *slots = (struct slot *)((char *)ix + ix->inode_slots);
    const struct entry *e = index_entry(ix, number);
    if (index_find_inode(ix, index_attr(ix, e)->dev, e->ino) >= 0)
        return;
    uint64_t hash = inode_hash(e->ino);
    uint32_t i = home(hash, ix->inode_slot_count);
    while (slots[i].entry)
        i = i + 1 == ix->inode_slot_count ? 0 : i + 1;
    slots[i] = (struct slot){.tag = (uint32_t)hash, .entry = number + 1};
}

static uint64_t block_digest(const struct index *ix)
{
    return xxh3(ix + 1, ix->seg.length - sizeof(*ix), 0);
}

/* block_identity - what must be equal on all nodes so that they can refer to Files by
 * number. Access times, devices and directories may differ between nodes. */
static uint64_t block_identity(const struct index *ix)
{
    uint64_t all = ix->file_count;
    for (uint32_t i = 0; i < ix->file_count; i++) {
        const struct entry *e = index_first(ix, i);
        uint64_t words[IDENTITY_WORDS];
        index_identity(e, index_hash(index_path(ix, e), index_path_bytes(e)), words);
        all = xxh3(words, sizeof(words), all);
    }
    return all;
}

/* array_end - the end of the array at `offset`, or 0 if it starts before `from`, is not
 * aligned or does not fit: arrays are in order and do not overlap. */
static uint64_t array_end(const struct index *ix, uint64_t from, uint64_t offset,
                          uint64_t bytes)
{
    if (from == 0 || offset < from || offset % 8 || offset > ix->seg.length ||
        bytes > ix->seg.length - offset)
        return 0;
    return offset + bytes;
}

static bool arrays_valid(const struct index *ix)
{
    uint64_t end = sizeof(*ix);
    end = array_end(ix, end, ix->entries, ix->entry_count * sizeof(struct entry));
    end = array_end(ix, end, ix->slots, ix->slot_count * sizeof(struct slot));
    end = array_end(ix, end, ix->inode_slots,
                    ix->inode_slot_count * sizeof(struct slot));
    end = array_end(ix, end, ix->attrs, ix->attr_count * sizeof(struct attr));
    end = array_end(ix, end, ix->first_entry, ix->file_count * sizeof(uint32_t));
    return array_end(ix, end, ix->arena, ix->arena_bytes) != 0;
}

/* shape_valid - every array is inside the block, and the tables have a free slot, so
 * that a probe ends. */
static bool shape_valid(const struct index *ix, size_t length)
{
    return length >= sizeof(*ix) && ix->seg.length == length &&
           memcmp(ix->seg.magic, "MONARCH", 8) == 0 &&
           ix->seg.version == LAYOUT_VERSION && ix->seg.kind == SEGMENT_INDEX &&
           ix->entry_count > 0 && ix->slot_count > ix->entry_count &&
           ix->inode_slot_count > ix->entry_count && arrays_valid(ix);
}

static bool entry_valid(const struct index *ix, const struct entry *e)
{
    if (e->attr >= ix->attr_count || (e->path >> 16) > ix->arena_bytes ||
        index_path_bytes(e) > ix->arena_bytes - (e->path >> 16) ||
        index_path_bytes(e) >= PATH_BYTES_MAX)
        return false;
    if (e->target != NONE32 && e->target >= ix->entry_count)
        return false;
    uint32_t numbers = S_ISDIR(index_attr(ix, e)->mode) ? ix->dir_count
                                                        : ix->file_count;
    if (S_ISLNK(index_attr(ix, e)->mode) && e->target != NONE32)
        return e->file == index_entry(ix, e->target)->file;
    return e->file == NONE32 || e->file < numbers;
}

static bool entries_valid(const struct index *ix)
{
    const uint32_t *first = (const uint32_t *)((const char *)ix + ix->first_entry);
    for (uint32_t i = 0; i < ix->entry_count; i++)
        if (!entry_valid(ix, index_entry(ix, i)))
            return false;
    for (uint32_t i = 0; i < ix->file_count; i++)
        if (first[i] >= ix->entry_count || index_entry(ix, first[i])->file != i ||
            !S_ISREG(index_attr(ix, index_entry(ix, first[i]))->mode))
            return false;
    return S_ISDIR(index_attr(ix, index_entry(ix, 0))->mode) &&
           index_path_bytes(index_entry(ix, 0)) == 0;
}

/* slots_used - the number of occupied slots of a table; more than there are Entries if
 * a slot has an invalid Entry. */
static uint32_t slots_used(const struct index *ix, const struct slot *slots,
                           uint32_t count)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        used += slots[i].entry != 0;
        if (slots[i].entry > ix->entry_count)
            return ix->entry_count + 1;
    }
    return used;
}

static bool tables_valid(const struct index *ix)
{
    const struct slot *slots = (const struct slot *)((const char *)ix + ix->slots);
    return slots_used(ix, slots, ix->slot_count) == ix->entry_count &&
           slots_used(ix, inode_slots(ix), ix->inode_slot_count) <= ix->entry_count;
}

/* index_finish - fills both tables, the identity and the digest of a block whose
 * entries, attrs, first_entry and arena are in place. -EINVAL: broken block, -EEXIST: a
 * path twice. */
int index_finish(struct index *ix, size_t length)
{
    if (!shape_valid(ix, length) || !entries_valid(ix))
        return -EINVAL;
    memset((char *)ix + ix->slots, 0, ix->slot_count * sizeof(struct slot));
    memset((char *)ix + ix->inode_slots, 0, ix->inode_slot_count * sizeof(struct slot));
    for (uint32_t i = 0; i < ix->entry_count; i++) {
        int rc = insert_path(ix, i);
        if (rc)
            return rc;
        insert_inode(ix, i);
    }
    ix->identity = block_identity(ix);
    ix->digest = block_digest(ix);
    return 0;
}

/* index_check - checks that look-ups in an untrusted block stay inside it. -EINVAL:
 * shape or references; -EBADMSG: digest or identity. */
int index_check(const struct index *ix, size_t length)
{
    if (!shape_valid(ix, length))
        return -EINVAL;
    if (ix->digest != block_digest(ix))
        return -EBADMSG;
    if (!entries_valid(ix) || !tables_valid(ix))
        return -EINVAL;
    return ix->identity == block_identity(ix) ? 0 : -EBADMSG;
}
