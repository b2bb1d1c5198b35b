/* index.c - the hash tables of an index block: filled once, looked up without a
 * lock. */
#include "index.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "xxh3.h"

/* inode_hash - mixes an inode number (Stafford 2011, variant 13). */
static uint64_t inode_hash(uint64_t ino)
{
    ino = (ino ^ ino >> 30) * 0xbf58476d1ce4e5b9u;
    ino = (ino ^ ino >> 27) * 0x94d049bb133111ebu;
    return ino ^ ino >> 31;
}

/* index_hash - returns the hash of a root-relative path; names of Replicas contain it too. */
uint64_t index_hash(const char *rel, size_t n)
{
    return xxh3(rel, n, 0);
}

/* index_identity - writes the identity of a File below its root: `e` is its first Entry,
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

/* index_find_hashed - returns the Entry of a root-relative path whose hash is known, or -1. */
int64_t index_find_hashed(const struct index *ix, const char *rel, size_t n,
                          uint64_t hash)
{
    const struct slot *slots = (const struct slot *)((const char *)ix + ix->slots);
    uint32_t i = index_home(hash, ix->slot_count);
    while (slots[i].entry) {
        uint32_t number = slots[i].entry - 1;
        if (slots[i].tag == (uint32_t)hash &&
            same_path(ix, index_entry(ix, number), rel, n))
            return number;
        i = i + 1 == ix->slot_count ? 0 : i + 1;
    }
    return -1;
}

/* index_find - returns the Entry of a root-relative path, or -1. */
int64_t index_find(const struct index *ix, const char *rel, size_t n)
{
    return index_find_hashed(ix, rel, n, index_hash(rel, n));
}

static const struct slot *inode_slots(const struct index *ix)
{
    return (const struct slot *)((const char *)ix + ix->inode_slots);
}

/* index_find_inode - returns the first Entry of any type with this identity, or -1. */
int64_t index_find_inode(const struct index *ix, uint64_t dev, uint64_t ino)
{
    const struct slot *slots = inode_slots(ix);
    uint64_t hash = inode_hash(ino);
    uint32_t i = index_home(hash, ix->inode_slot_count);
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

/* index_find_directory - returns the Entry of the directory with this identity, or -1. */
int64_t index_find_directory(const struct index *ix, uint64_t dev, uint64_t ino)
{
    int64_t found = index_find_inode(ix, dev, ino);
    if (found >= 0 && !S_ISDIR(index_attr(ix, index_entry(ix, (uint32_t)found))->mode))
        return -1;
    return found;
}

/* index_listed_at - returns the Entry of the name in a directory at this place, counted from the
 * first name, and sets the place of the next; NONE32: none. */
uint32_t index_listed_at(const struct index *ix, uint32_t directory, uint64_t *place)
{
    const struct entry *at = index_entry(ix, directory);
    const char *arena = (const char *)ix + ix->arena, *head = index_path(ix, at);
    size_t n = index_path_bytes(at), name = n ? n + 1 : 0;
    uint64_t start = at->target + *place;
    if (!index_listed(ix, directory) || start < at->target || start >= ix->arena_bytes)
        return NONE32;
    const char *path = arena + start;
    const char *end = memchr(path, 0, ix->arena_bytes - start);
    size_t bytes = end ? (size_t)(end - path) : 0;
    if (bytes <= name || memcmp(path, head, n) != 0 || (n && path[n] != '/') ||
        memchr(path + name, '/', bytes - name))
        return NONE32;
    int64_t found = index_find(ix, path, bytes);
    if (found < 0)
        return NONE32;
    *place += bytes + 1;
    return (uint32_t)found;
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
    uint32_t i = index_home(hash, ix->slot_count);
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
    uint32_t i = index_home(hash, ix->inode_slot_count);
    while (slots[i].entry)
        i = i + 1 == ix->inode_slot_count ? 0 : i + 1;
    slots[i] = (struct slot){.tag = (uint32_t)hash, .entry = number + 1};
}

static uint64_t block_digest(const struct index *ix)
{
    return xxh3(ix + 1, ix->seg.length - sizeof(*ix), 0);
}

/* block_identity - hashes the data that must be equal on all nodes so that they can refer to Files
 * by number. Access times, devices and directories may differ between nodes. */
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

/* array_end - returns the end of the array at `offset`, or 0 if it starts before `from`, is not
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

/* kinds_valid - the Entries of names, outer ones and hops that hold a target fit into the count. */
static bool kinds_valid(const struct index *ix)
{
    uint64_t outside = (uint64_t)ix->name_count + ix->outer_count;
    return ix->name_count > 0 && outside + ix->holder_count <= ix->entry_count;
}

/* shape_valid - every array is inside the block, and the tables have a free slot, so
 * that a probe ends. */
static bool shape_valid(const struct index *ix, size_t length)
{
    return length >= sizeof(*ix) && ix->seg.length == length &&
           memcmp(ix->seg.magic, "MONARCH", 8) == 0 &&
           ix->seg.version == LAYOUT_VERSION && ix->seg.kind == SEGMENT_INDEX &&
           ix->entry_count > 0 && ix->slot_count > ix->name_count &&
           ix->inode_slot_count > ix->entry_count && kinds_valid(ix) &&
           arrays_valid(ix);
}

static bool entry_valid(const struct index *ix, const struct entry *e)
{
    if (e->attr >= ix->attr_count || (e->path >> 16) > ix->arena_bytes ||
        index_path_bytes(e) > ix->arena_bytes - (e->path >> 16) ||
        index_path_bytes(e) >= PATH_BYTES_MAX)
        return false;
    bool directory = S_ISDIR(index_attr(ix, e)->mode);
    if (e->target != NONE32 && !directory && e->target >= ix->entry_count)
        return false;
    uint32_t numbers = directory ? ix->dir_count : ix->file_count;
    if (S_ISLNK(index_attr(ix, e)->mode) && e->target != NONE32)
        return e->file == index_entry(ix, e->target)->file;
    return e->file == NONE32 || e->file < numbers ||
           (e->file & FILE_SHARED && !directory);
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

/* slots_used - returns the number of occupied slots of a table, or more than the number of Entries
 * if a slot has an invalid Entry. */
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
    return slots_used(ix, slots, ix->slot_count) == ix->name_count &&
           slots_used(ix, inode_slots(ix), ix->inode_slot_count) <= ix->entry_count;
}

/* index_finish - fills both tables, the identity and the digest of a block whose entries, attrs,
 * first_entry and arena are in place. -EINVAL: broken block, -EEXIST: a duplicate path. */
int index_finish(struct index *ix, size_t length)
{
    if (!shape_valid(ix, length) || !entries_valid(ix))
        return -EINVAL;
    memset((char *)ix + ix->slots, 0, ix->slot_count * sizeof(struct slot));
    memset((char *)ix + ix->inode_slots, 0, ix->inode_slot_count * sizeof(struct slot));
    for (uint32_t i = 0; i < ix->entry_count; i++) {
        int rc = i < ix->name_count ? insert_path(ix, i) : 0;
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
