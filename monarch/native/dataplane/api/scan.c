/* scan.c - reads the names of a directory and their metadata, many per call, for the scan of a
 * root. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "dataplane/api/layout_dump.h"
#include "dataplane/base/clock.h"

/* Numbers that older headers lack. */
#define EROFS_MAGIC 0xe0f5e1e2
#define XFS_MAGIC 0x58465342
#define ZFS_MAGIC 0x2fc12fc1
#define BPF_FS_MAGIC 0xcafe4a11
#define BINFMTFS_MAGIC 0x42494e4d
#define CGROUP2_SUPER_MAGIC 0x63677270
#define CONFIGFS_MAGIC 0x62656570
#define FUSECTL_MAGIC 0x65735543
#define MQUEUE_MAGIC 0x19800202
#define NSFS_MAGIC 0x6e736673
#define RDTGROUP_MAGIC 0x07655821
#define TRACEFS_MAGIC 0x74726163

#define SIZE_MAX_BYTES (1ull << 46) /* no Tier holds a larger File */
#define TIME_MAX INT64_MAX

enum {
    SHARED_MAX = 16, /* different attributes that one batch is compared with */
};

struct listed { /* of getdents64(2) */
    uint64_t ino;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* monarch_scan_list - reads the next names of an open directory into `names`, each with its NUL,
 * and their DT_ types into `types`. Returns the bytes of the names; 0: no more; -errno. Both have
 * SCAN_LIST_BYTES. */
int64_t monarch_scan_list(int fd, char *names, uint8_t *types)
{
    _Alignas(struct listed) char buffer[SCAN_LIST_BYTES];
    int64_t used = 0;
    while (!used) {
        long got = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
        if (got <= 0)
            return got < 0 ? -errno : 0;
        for (long at = 0; at < got;) {
            const struct listed *item = (const void *)(buffer + at);
            at += item->bytes;
            if (is_dots(item->name))
                continue;
            size_t n = strlen(item->name) + 1;
            memcpy(names + used, item->name, n);
            used += (int64_t)n;
            *types++ = item->type;
        }
    }
    return used;
}

static void look(int fd, const char *name, struct monarch_found *out)
{
    struct stat st;
    *out = (struct monarch_found){0};
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW)) {
        out->status = -errno;
        return;
    }
    out->ino = st.st_ino;
    out->size = (uint64_t)st.st_size;
    out->blocks = (uint64_t)st.st_blocks;
    out->dev = st.st_dev;
    out->mtime_s = st.st_mtim.tv_sec;
    out->ctime_s = st.st_ctim.tv_sec;
    out->atime_s = st.st_atim.tv_sec;
    out->mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
    out->ctime_ns = (uint32_t)st.st_ctim.tv_nsec;
    out->atime_ns = (uint32_t)st.st_atim.tv_nsec;
    out->mode = st.st_mode;
    out->uid = st.st_uid;
    out->gid = st.st_gid;
    out->nlink = (uint64_t)st.st_nlink;
    out->blksize = (uint64_t)st.st_blksize;
}

/* monarch_scan_find - reads the metadata of `count` names, one after the other with their NULs, in
 * an open directory; ends early, but not before the first, after `limit_ns`. Returns the number of
 * names that were looked up. */
uint32_t monarch_scan_find(int fd, const char *names, uint32_t count,
                           struct monarch_found *out, uint64_t limit_ns)
{
    uint64_t start = clock_ns();
    for (uint32_t i = 0; i < count; i++) {
        if (i && limit_ns && clock_ns() - start >= limit_ns)
            return i;
        look(fd, names, &out[i]);
        names += strlen(names) + 1;
    }
    return count;
}

/* monarch_scan_readable - asks the kernel which of these names this process may read. */
void monarch_scan_readable(int fd, const char *names, uint32_t count,
                           struct monarch_found *out)
{
    for (uint32_t i = 0; i < count; i++, names += strlen(names) + 1)
        out[i].readable = !out[i].status && !S_ISLNK(out[i].mode) &&
                          faccessat(fd, names, R_OK, AT_EACCESS) == 0;
}

/* is_one_of - the file system of a directory has one of these types. */
static bool is_one_of(int fd, const uint32_t *types, size_t count)
{
    struct statfs fs;
    if (fstatfs(fd, &fs))
        return false;
    for (size_t i = 0; i < count; i++)
        if ((uint32_t)fs.f_type == types[i])
            return true;
    return false;
}

/* monarch_rights_are_local - this kernel alone decides which processes may read the files of a
 * directory, so that the check costs no request. */
int monarch_rights_are_local(int fd)
{
    static const uint32_t local[] = {
        EXT4_SUPER_MAGIC,      XFS_MAGIC,   BTRFS_SUPER_MAGIC,
        F2FS_SUPER_MAGIC,      TMPFS_MAGIC, RAMFS_MAGIC,
        OVERLAYFS_SUPER_MAGIC, ZFS_MAGIC,   SQUASHFS_MAGIC,
        ISOFS_SUPER_MAGIC,     EROFS_MAGIC};
    return is_one_of(fd, local, sizeof(local) / sizeof(local[0]));
}

/* monarch_is_pseudo - the kernel generates the contents of the files of a directory, so that their
 * sizes and times mean nothing. */
int monarch_is_pseudo(int fd)
{
    static const uint32_t pseudo[] = {
        PROC_SUPER_MAGIC, SYSFS_MAGIC,       CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
        DEBUGFS_MAGIC,    TRACEFS_MAGIC,     SECURITYFS_MAGIC,   SELINUX_MAGIC,
        BPF_FS_MAGIC,     BINFMTFS_MAGIC,    PSTOREFS_MAGIC,     EFIVARFS_MAGIC,
        NSFS_MAGIC,       RDTGROUP_MAGIC,    CONFIGFS_MAGIC,     FUSECTL_MAGIC,
        MQUEUE_MAGIC,     DEVPTS_SUPER_MAGIC};
    return is_one_of(fd, pseudo, sizeof(pseudo) / sizeof(pseudo[0]));
}

/* ---- rows of the Catalog ----------------------------------------------------------- */

/* time_ns - converts a time to nanoseconds; false: it does not fit, and *out is the nearest. */
static bool time_ns(int64_t seconds, uint32_t rest, int64_t *out)
{
    int64_t ns;
    bool fits = rest < SECOND_NS &&
                !__builtin_mul_overflow(seconds, (int64_t)SECOND_NS, &ns) &&
                !__builtin_add_overflow(ns, (int64_t)rest, &ns) && ns >= -TIME_MAX;
    *out = fits ? ns : seconds < 0 ? -TIME_MAX : TIME_MAX;
    return fits;
}

/* has_identity - the inode identifies the object: file systems without inodes have one number for
 * all objects. */
static bool has_identity(const struct monarch_found *f)
{
    return f->ino != 0 && f->ino != UINT64_MAX;
}

/* to_row - converts metadata; false: the Catalog cannot represent it. A directory has a row
 * whatever its values, because names below it have rows: values that do not fit are clamped, and
 * the Shim asks the origin. */
static bool to_row(const struct monarch_found *f, struct monarch_row *row)
{
    bool fits = time_ns(f->mtime_s, f->mtime_ns, &row->mtime_ns);
    fits &= time_ns(f->ctime_s, f->ctime_ns, &row->ctime_ns);
    fits &= time_ns(f->atime_s, f->atime_ns, &row->atime_ns);
    fits &= f->size <= SIZE_MAX_BYTES && f->nlink <= UINT32_MAX &&
            f->blksize <= UINT32_MAX && has_identity(f);
    row->ino = f->ino;
    row->size = f->size > INT64_MAX        ? 0
                : f->size > SIZE_MAX_BYTES ? SIZE_MAX_BYTES
                                           : f->size;
    row->blocks = fits && f->blocks < NONE32 ? (uint32_t)f->blocks : NONE32;
    return fits;
}

static uint8_t kind_of(const struct monarch_found *f, bool fits, uint64_t root_dev)
{
    if (f->status == -EACCES || f->status == -EPERM)
        return SCAN_UNREADABLE;
    if (f->status)
        return f->status == -ENOENT ? SCAN_GONE : SCAN_FAILED;
    if (S_ISDIR(f->mode) ? !has_identity(f) : !fits)
        return SCAN_ABSURD;
    /* Directories only: on overlayfs, files have other devices. */
    if (S_ISDIR(f->mode))
        return f->dev == root_dev ? SCAN_DIRECTORY : SCAN_MOUNT;
    if (S_ISLNK(f->mode))
        return SCAN_LINK;
    /* A special file cannot be staged, and its times change with use. */
    return S_ISREG(f->mode) ? SCAN_FILE : SCAN_SPECIAL;
}

static bool share(const struct monarch_found *a, const struct monarch_found *b)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid &&
           a->nlink == b->nlink && a->dev == b->dev && a->blksize == b->blksize &&
           a->readable == b->readable;
}

/* monarch_scan_rows - converts metadata to rows of the Catalog and their enum scan_kind.
 * The `attr` of a row is the number of a name of this batch with equal attributes. */
void monarch_scan_rows(const struct monarch_found *found, uint32_t count,
                       uint64_t root_dev, struct monarch_row *rows, uint8_t *kinds)
{
    uint32_t shared[SHARED_MAX], known = 0;
    for (uint32_t i = 0; i < count; i++) {
        kinds[i] = kind_of(&found[i], to_row(&found[i], &rows[i]), root_dev);
        uint32_t k = 0;
        while (k < known && !share(&found[i], &found[shared[k]]))
            k++;
        if (k == known && known < SHARED_MAX)
            shared[known++] = i;
        rows[i].attr = k < SHARED_MAX ? shared[k] : i;
    }
}

/* ---- layouts ----------------------------------------------------------------------- */

const struct row scan_layout[] = {
    STRUCT(monarch_found),
    FIELD(monarch_found, ino),
    FIELD(monarch_found, size),
    FIELD(monarch_found, blocks),
    FIELD(monarch_found, dev),
    FIELD(monarch_found, nlink),
    FIELD(monarch_found, blksize),
    FIELD(monarch_found, mtime_s),
    FIELD(monarch_found, ctime_s),
    FIELD(monarch_found, atime_s),
    FIELD(monarch_found, mtime_ns),
    FIELD(monarch_found, ctime_ns),
    FIELD(monarch_found, atime_ns),
    FIELD(monarch_found, mode),
    FIELD(monarch_found, uid),
    FIELD(monarch_found, gid),
    FIELD(monarch_found, readable),
    FIELD(monarch_found, status),

    STRUCT(monarch_row),
    FIELD(monarch_row, ino),
    FIELD(monarch_row, size),
    FIELD(monarch_row, mtime_ns),
    FIELD(monarch_row, ctime_ns),
    FIELD(monarch_row, atime_ns),
    FIELD(monarch_row, blocks),
    FIELD(monarch_row, attr),

    MEMBER(scan_kind, SCAN_FILE),
    MEMBER(scan_kind, SCAN_DIRECTORY),
    MEMBER(scan_kind, SCAN_LINK),
    MEMBER(scan_kind, SCAN_SPECIAL),
    MEMBER(scan_kind, SCAN_MOUNT),
    MEMBER(scan_kind, SCAN_ABSURD),
    MEMBER(scan_kind, SCAN_GONE),
    MEMBER(scan_kind, SCAN_UNREADABLE),
    MEMBER(scan_kind, SCAN_FAILED),

    CONSTANT(SCAN_LIST_BYTES),
    {NULL, NULL, NULL, NULL, 0, 0},
};
