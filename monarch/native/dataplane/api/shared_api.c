/* shared_api.c - the functions of shared/ that libmonarch.so exports to Python. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/vfs.h>

#include "dataplane/api/api.h"
#include "shared/catalog.h"
#include "shared/changes.h"
#include "shared/counters.h"
#include "shared/mountinfo.h"
#include "shared/rights.h"
#include "shared/run_home.h"
#include "shared/xxh3.h"

/* monarch_hash - returns the 64-bit XXH3 of some bytes. */
uint64_t monarch_hash(const void *bytes, size_t n, uint64_t seed)
{
    return xxh3(bytes, n, seed);
}

/* monarch_wait_bucket_ns - returns the shortest wait in a bucket of wait_bucket(). */
uint64_t monarch_wait_bucket_ns(uint32_t bucket)
{
    if (bucket == 0 || bucket >= WAIT_BUCKETS)
        return 0;
    uint64_t power = (uint64_t)1024 << bucket / 2;
    return bucket % 2 ? power + power / 2 : power;
}

/* monarch_index_finish - see index_finish(). */
int monarch_index_finish(void *block, size_t length)
{
    return index_finish(block, length);
}

/* monarch_index_check - see index_check(). */
int monarch_index_check(const void *block, size_t length)
{
    return index_check(block, length);
}

/* monarch_inodes_unstable - see mountinfo_unstable(). -errno: unknown. */
int monarch_inodes_unstable(const char *directory)
{
    struct statfs fs;
    if (statfs(directory, &fs) != 0)
        return -errno;
    return mountinfo_unstable(&fs);
}

/* monarch_file_system_traits - returns FS_... of the file system of a directory, or -errno. */
int monarch_file_system_traits(const char *directory)
{
    struct statfs fs;
    if (statfs(directory, &fs) != 0)
        return -errno;
    return mountinfo_traits(&fs);
}

/* monarch_index_find - returns the Entry of a root-relative path, or -1. */
int64_t monarch_index_find(const void *block, const char *rel, size_t n)
{
    return index_find(block, rel, n);
}

/* monarch_index_find_inode - see index_find_inode(). */
int64_t monarch_index_find_inode(const void *block, uint64_t dev, uint64_t ino)
{
    return index_find_inode(block, dev, ino);
}

/* monarch_catalog_state_store - makes the Catalog visible to programs; see shared/changes.c for the
 * order in which that is safe. */
void monarch_catalog_state_store(void *requests, uint32_t state)
{
    atomic_store((_Atomic uint32_t *)&((struct requests *)requests)->catalog, state);
}

/* monarch_changes_apply - see changes_apply(). */
void monarch_changes_apply(const void *outline, void *changes, const void *catalog,
                           void *flags)
{
    changes_apply(outline, changes, catalog, flags);
}

/* monarch_home_choose - see home_choose(); without a base, HOME_BASE is used. */
int monarch_home_choose(const char *base, int make, char *out)
{
    return home_choose(base ? base : HOME_BASE, make, out);
}

/* monarch_home_list - writes the paths of home_list(), HOME_BYTES_MAX bytes each, and
 * returns their number. */
int monarch_home_list(const char *base, char *out)
{
    struct homes all;

    home_list(base ? base : HOME_BASE, &all);
    memcpy(out, all.path, sizeof(all.path));
    return all.count;
}

/* monarch_replica_name - writes the name in a Tier of the File whose first Entry this is, below the
 * root whose realpath has this hash. */
void monarch_replica_name(const void *block, uint64_t root_hash, uint32_t entry,
                          char out[32])
{
    const struct entry *e = index_entry(block, entry);
    uint64_t hash = index_hash(index_path(block, e), index_path_bytes(e));
    replica_name(e, root_hash, hash, out);
}

/* monarch_rights_read - fills in the struct rights of this process. */
void monarch_rights_read(void *rights)
{
    rights_read(rights);
    rights_locate(rights);
}

/* monarch_rights_mark - returns the rights_mark() of this process. */
uint32_t monarch_rights_mark(void)
{
    struct rights mine;
    rights_read(&mine);
    return rights_mark(&mine);
}

/* monarch_mounts_cover - see mountinfo_covers(). */
int monarch_mounts_cover(const void *block, const char *directory, size_t n)
{
    struct mountinfo room;
    return mountinfo_covers(&room, block, directory, n);
}
