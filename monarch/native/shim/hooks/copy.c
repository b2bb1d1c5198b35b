/* copy.c - copy_file_range() from a Replica, which lies on another file system. */
#include <errno.h>
#include <fcntl.h>

#include "shim/names/identity.h"
#include "shim/base/next.h"
#include "shim/base/object.h"
#include "shim/base/sys.h"

enum { CHUNK = 4096, COPY_BYTES_MAX = 8 << 20 };

static long read_some(int fd, char *chunk, size_t n, const off64_t *at)
{
    return at ? sys_call(SYS_pread64, fd, (long)chunk, (long)n, *at, 0)
              : sys_call(SYS_read, fd, (long)chunk, (long)n, 0, 0);
}

static long write_some(int fd, const char *chunk, size_t n, const off64_t *at)
{
    return at ? sys_call(SYS_pwrite64, fd, (long)chunk, (long)n, *at, 0)
              : sys_call(SYS_write, fd, (long)chunk, (long)n, 0, 0);
}

/* copy_chunk - reads and writes once; moves the source's offset back over unwritten bytes. */
static long copy_chunk(int in, off64_t *in_at, int out, off64_t *out_at, size_t n)
{
    char chunk[CHUNK];
    long got = read_some(in, chunk, n < CHUNK ? n : CHUNK, in_at);
    if (got <= 0)
        return got;
    long put = write_some(out, chunk, (size_t)got, out_at);
    long done = put > 0 ? put : 0;
    if (in_at)
        *in_at += done;
    else if (done < got)
        sys_call(SYS_lseek, in, done - got, SEEK_CUR, 0, 0);
    if (out_at)
        *out_at += done;
    return put;
}

static ssize_t copy_by_hand(int in, off64_t *in_at, int out, off64_t *out_at, size_t n)
{
    ssize_t copied = 0;
    n = n < COPY_BYTES_MAX ? n : COPY_BYTES_MAX;
    while ((size_t)copied < n) {
        long put = copy_chunk(in, in_at, out, out_at, n - (size_t)copied);
        if (put < 0 && copied == 0) {
            errno = (int)-put;
            return -1;
        }
        if (put <= 0)
            break;
        copied += put;
    }
    return copied;
}

/* redirected_to - finds the File behind a redirected descriptor; false: it is another one. */
static bool redirected_to(int fd, struct identity *id)
{
    const struct segments *seg = attach_for_marking();
    struct stat st;
    return seg && object_of(fd, &st) && identity_of(seg, &st, id);
}

/* is_origin - whether a descriptor is that of the origin's file itself. */
static bool is_origin(int fd, const struct identity *id)
{
    return identity_is(id, fd);
}

/* copy_within - copies the origin's file into itself: the kernel checks the ranges. */
static ssize_t copy_within(int in, off64_t *in_at, int out, off64_t *out_at, size_t n)
{
    char name[FD_NAME_BYTES];
    off64_t at = in_at ? *in_at : sys_call(SYS_lseek, in, 0, SEEK_CUR, 0, 0);
    sys_fd_name(name, out); /* the same file once more, but for reading */
    int source = sys_openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (source < 0) {
        errno = -source;
        return -1;
    }
    ssize_t copied = NEXT(copy_file_range)(source, &at, out, out_at, n, 0);
    sys_close(source);
    if (copied > 0 && in_at)
        *in_at = at;
    else if (copied > 0)
        sys_call(SYS_lseek, in, at, SEEK_SET, 0, 0);
    return copied;
}

ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset,
                        size_t length, unsigned flags)
{
    int kept = errno;
    struct identity id;
    bool redirected = flags == 0 && redirected_to(in, &id);
    /* A Tier on the origin's own file system causes no EXDEV. */
    if (redirected && is_origin(out, &id))
        return copy_within(in, in_offset, out, out_offset, length);
    ssize_t copied = NEXT(copy_file_range)(in, in_offset, out, out_offset, length,
                                           flags);
    if (copied >= 0 || errno != EXDEV || !redirected)
        return copied;
    errno = kept;
    return copy_by_hand(in, in_offset, out, out_offset, length);
}
