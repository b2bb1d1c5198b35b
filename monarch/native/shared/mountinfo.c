/* mountinfo.c - reads /proc/self/mountinfo in small pieces, without stdio or malloc. */
#include "mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIELD_POINT = 4, OCTAL_DIGITS = 3 };

/* What statx() of Linux 5.8 tells beside the basic set; older headers do not know it. */
enum { MOUNT_ID = 0x1000, MOUNT_ID_OFFSET = 0x90 };

/* mountinfo_id - the number of the mount that a name is on; 0: the kernel does not tell. */
uint32_t mountinfo_id(int dirfd, const char *path, int flags)
{
    int kept = errno;
    struct statx st;
    uint32_t id = 0; /* of 64 bits, of which those behind are never used */
    long rc = syscall(SYS_statx, dirfd, path, flags | AT_STATX_DONT_SYNC, MOUNT_ID,
                      &st);
    if (rc == 0 && (st.stx_mask & MOUNT_ID))
        memcpy(&id, (const char *)&st + MOUNT_ID_OFFSET, sizeof(id));
    errno = kept;
    return id;
}

/* take - the next byte, or -1 at the end. */
static int take(struct mountinfo *m)
{
    if (m->at == m->held) {
        long n = syscall(SYS_read, m->fd, m->chunk, sizeof(m->chunk));
        m->failed |= n < 0;
        m->held = n > 0 ? (size_t)n : 0;
        m->at = 0;
    }
    return m->held ? (unsigned char)m->chunk[m->at++] : -1;
}

/* take_escaped - the byte that the three digits behind a backslash stand for. */
static int take_escaped(struct mountinfo *m)
{
    int value = 0;
    for (int i = 0; i < OCTAL_DIGITS; i++)
        value = value * 8 + (take(m) - '0');
    return value & 0xff;
}

static void keep(struct mountinfo *m, int c)
{
    if (m->length < sizeof(m->point) - 1)
        m->point[m->length] = (char)c;
    m->length++;
}

/* next - reads a line, of which only the mount point counts; false at the end. */
static bool next(struct mountinfo *m)
{
    unsigned field = 0;
    int c;
    m->length = 0;
    for (c = take(m); c >= 0 && c != '\n'; c = take(m)) {
        if (c == ' ')
            field++;
        else if (field == FIELD_POINT)
            keep(m, c == '\\' ? take_escaped(m) : c);
    }
    m->point[m->length < sizeof(m->point) ? m->length : sizeof(m->point) - 1] = 0;
    return c >= 0;
}

/* covers - the mount point has a name below the directory that the index holds; what the
 * scan has left out has nothing catalogued below it either. */
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

/* mountinfo_covers - something is mounted on a catalogued name below the root, which this
 * process knows by the kernel's path `directory`; true as well when it cannot be told. */
bool mountinfo_covers(struct mountinfo *m, const struct index *ix,
                      const char *directory, size_t n)
{
    int kept = errno;
    bool found = false;
    m->fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mountinfo",
                         O_RDONLY | O_CLOEXEC);
    m->failed = m->fd < 0;
    m->at = m->held = 0;
    while (!m->failed && !found && next(m))
        found = covers(m, ix, directory, n);
    if (m->fd >= 0)
        syscall(SYS_close, m->fd);
    errno = kept;
    return found || m->failed;
}
