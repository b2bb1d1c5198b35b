/* inherited.c - marks files that this process can write to without an observed open: by descriptors
 * that it was given, and by mappings made before the agent existed. */
#include <fcntl.h>
#include <sys/sysmacros.h>

#include "shim/base/object.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"

/* writable - the descriptor is that of a regular file, open for writing. */
static bool writable(int fd, struct stat *st)
{
    long flags = sys_call(SYS_fcntl, fd, F_GETFL, 0, 0, 0);
    return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY &&
           object_of(fd, st) && S_ISREG(st->st_mode);
}

/* invalidate_if_writable - marks the file of a descriptor that this process has not opened itself;
 * `seg` may be NULL. False: nothing can be written by it. */
bool invalidate_if_writable(const struct segments *seg, int fd)
{
    struct stat st;
    if (!writable(fd, &st))
        return false;
    if (seg)
        invalidate_descriptor(seg, fd, CHANGE_BYTES);
    return true;
}

struct name_record { /* struct linux_dirent64, getdents64(2) */
    uint64_t ino;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

/* invalidate_listed - marks by the descriptors that a piece of /proc/self/fd names. */
static bool invalidate_listed(const struct segments *seg, const char *piece, long n,
                              int own)
{
    bool found = false;
    for (const char *at = piece; at < piece + n;) {
        const struct name_record *record = (const struct name_record *)at;
        int fd = 0;
        for (const char *digit = record->name; *digit >= '0' && *digit <= '9'; digit++)
            fd = 10 * fd + (*digit - '0');
        if (record->name[0] != '.' && fd != own)
            found |= invalidate_if_writable(seg, fd);
        at += record->bytes;
    }
    return found;
}

/* invalidate_inherited - marks the files that this process was given open for writing: its output
 * may go to a file of a dataset. Without /proc, only low descriptors are checked. `seg` may be
 * NULL. False: nothing can be written by those. */
bool invalidate_inherited(const struct segments *seg)
{
    SCRATCH(piece);
    bool found = false;
    int list = sys_openat(AT_FDCWD, "/proc/self/fd",
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int fd = 0; list < 0 && fd < 1024; fd++)
        found |= invalidate_if_writable(seg, fd);
    if (list < 0)
        return found;
    for (long n = 1; piece && n > 0;) {
        n = sys_call(SYS_getdents64, list, (long)piece, PATH_BYTES_MAX, 0, 0);
        found |= n > 0 && invalidate_listed(seg, piece, n, list);
    }
    sys_close(list);
    return found;
}

enum mapping_field { /* of a line in /proc/self/maps, proc_pid_maps(5) */
                     MAPPING_RIGHTS = 1,
                     MAPPING_DEVICE = 3,
                     MAPPING_INODE,
                     MAPPING_PATH,
};

struct mapping {
    unsigned field, column;
    bool shared;
    uint64_t major, minor, ino;
};

/* digit - returns the value of a lower-case hexadecimal digit. */
static unsigned digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* mark_mapped - marks a File that the line names: it is written to without any call, perhaps after
 * mprotect(). If devices are anonymous, as on btrfs, the line has another one than stat(). */
static void mark_mapped(const struct segments *seg, const struct mapping *m)
{
    if (!m->shared || !m->ino)
        return;
    for (uint32_t i = 0; i < seg->catalog->root_count; i++) {
        const struct stat st = {.st_dev = seg->catalog->roots[i].dev, .st_ino = m->ino};
        if (major(st.st_dev) == 0 || st.st_dev == makedev(m->major, m->minor))
            mark_object(seg, &st, CHANGE_BYTES);
    }
}

/* read_mapping - parses the next character of a line. */
static void read_mapping(struct mapping *m, char c)
{
    if (c == ' ' && m->field < MAPPING_PATH) {
        m->field++;
        m->column = 0;
        return;
    }
    if (m->field == MAPPING_RIGHTS) {
        m->shared |= m->column == 3 && c == 's';
        m->column++;
    } else if (m->field == MAPPING_DEVICE && c == ':') {
        m->major = m->minor;
        m->minor = 0;
    } else if (m->field == MAPPING_DEVICE) {
        m->minor = 16 * m->minor + digit(c);
    } else if (m->field == MAPPING_INODE) {
        m->ino = 10 * m->ino + digit(c);
    }
}

/* invalidate_mapped - marks the files that this process has mapped to write to: the descriptors may
 * be closed. */
void invalidate_mapped(const struct segments *seg)
{
    SCRATCH(piece);
    int list = sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    struct mapping m = {0};
    for (long n = 1; seg && piece && list >= 0 && n > 0;) {
        n = sys_call(SYS_read, list, (long)piece, PATH_BYTES_MAX, 0, 0);
        for (long i = 0; i < n; i++) {
            if (piece[i] != '\n') {
                read_mapping(&m, piece[i]);
                continue;
            }
            mark_mapped(seg, &m);
            m = (struct mapping){0};
        }
    }
    if (list >= 0)
        sys_close(list);
}
