/* mountinfo.c - reads /proc/self/mountinfo in small pieces, without stdio or malloc. */
#include "mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif
#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

enum { FIELD_POINT = 4, OCTAL_DIGITS = 3 };

/* A field that statx() has since Linux 5.8; older headers do not declare it. */
enum { MOUNT_ID = 0x1000, MOUNT_ID_OFFSET = 0x90 };

/* mountinfo_unstable - whether files of this file system may change their inode numbers:
 * overlays copy a file when it is written to, FAT has none, and many FUSE servers number
 * files as they are looked up (statfs(2)). */
bool mountinfo_unstable(const struct statfs *fs)
{
    return fs->f_type == OVERLAYFS_SUPER_MAGIC || fs->f_type == FUSE_SUPER_MAGIC ||
           fs->f_type == MSDOS_SUPER_MAGIC || fs->f_type == EXFAT_SUPER_MAGIC;
}

/* mountinfo_traits - returns FS_... of a file system; 0: none, or unknown. */
int mountinfo_traits(const struct statfs *fs)
{
    static const uint32_t remote[] = {
        0x6969,     /* NFS */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x19830326, /* BeeGFS */
        0x00c36400, /* Ceph */
        0xaad7aaea, /* PanFS */
        0x01021997, /* 9P */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x5346414f, /* AFS */
    };
    uint32_t type = (uint32_t)fs->f_type;

    if (type == TMPFS_MAGIC || type == RAMFS_MAGIC || type == HUGETLBFS_MAGIC)
        return FS_IN_MEMORY;
    for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
        if (type == remote[i])
            return FS_REMOTE;
    return 0;
}

/* mountinfo_id - returns the number of the mount of a path; 0: unknown. */
uint32_t mountinfo_id(int dirfd, const char *path, int flags)
{
    int kept = errno;
    struct statx st;
    uint32_t id = 0; /* the low half of 64 bits; the high half is always 0 */
    long rc = syscall(SYS_statx, dirfd, path, flags | AT_STATX_DONT_SYNC, MOUNT_ID,
                      &st);
    if (rc == 0 && (st.stx_mask & MOUNT_ID))
        memcpy(&id, (const char *)&st + MOUNT_ID_OFFSET, sizeof(id));
    errno = kept;
    return id;
}

/* take - returns the next byte, or -1 at the end. */
static int take(struct mountinfo *m)
{
    if (m->at == m->filled) {
        long n = syscall(SYS_read, m->fd, m->chunk, sizeof(m->chunk));
        m->failed |= n < 0;
        m->filled = n > 0 ? (size_t)n : 0;
        m->at = 0;
    }
    return m->filled ? (unsigned char)m->chunk[m->at++] : -1;
}

/* take_escaped - returns a byte that is written as a backslash and three octal digits. */
static int take_escaped(struct mountinfo *m)
{
    int value = 0;
    for (int i = 0; i < OCTAL_DIGITS; i++)
        value = value * 8 + (take(m) - '0');
    return value & 0xff;
}

static void append(struct mountinfo *m, int c)
{
    if (m->length < sizeof(m->point) - 1)
        m->point[m->length] = (char)c;
    m->length++;
}

/* next - reads the mount point of the next line; false at the end. */
static bool next(struct mountinfo *m)
{
    unsigned field = 0;
    int c;
    m->length = 0;
    for (c = take(m); c >= 0 && c != '\n'; c = take(m)) {
        if (c == ' ')
            field++;
        else if (field == FIELD_POINT)
            append(m, c == '\\' ? take_escaped(m) : c);
    }
    m->point[m->length < sizeof(m->point) ? m->length : sizeof(m->point) - 1] = 0;
    return c >= 0;
}

/* covers - the mount point is a catalogued name below the directory. A name that is not
 * catalogued has no catalogued names below it either. */
static bool covers(const struct mountinfo *m, const struct index *ix,
                   const char *directory, size_t n)
{
    size_t head = n == 1 ? 0 : n; /* everything is below "/" */
    if (strncmp(m->point, directory, head) != 0 || m->point[head] != '/' ||
        m->point[head + 1] == 0)
        return false;
    head++;
    return m->length >= sizeof(m->point) ||
           index_find(ix, m->point + head, m->length - head) >= 0;
}

/* mountinfo_covers - a catalogued name below a root is a mount point; `directory` is
 * the kernel's path of the root. True also if this is unknown. */
bool mountinfo_covers(struct mountinfo *m, const struct index *ix,
                      const char *directory, size_t n)
{
    int kept = errno;
    bool found = false;
    m->fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mountinfo",
                         O_RDONLY | O_CLOEXEC);
    m->failed = m->fd < 0;
    m->at = m->filled = 0;
    while (!m->failed && !found && next(m))
        found = covers(m, ix, directory, n);
    if (m->fd >= 0)
        syscall(SYS_close, m->fd);
    errno = kept;
    return found || m->failed;
}
