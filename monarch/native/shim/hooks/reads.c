/* reads.c - the read family and mappings: those of large Files are served in part, all others are
 * left to the next function. */
#include <errno.h>

#include "shim/base/next.h"
#include "shim/serving/large_reads.h"
#include "shim/serving/mapping.h"

/* Tries to serve a descriptor of a large File, else calls the next function. */
#define READ_AT(fd, buffer, n, offset, next)              \
    if (__builtin_expect(large_suspect(fd), 0)) {         \
        const struct iovec piece = {buffer, n};           \
        const off64_t at_offset = offset;                 \
        ssize_t got;                                      \
        if (large_serve(fd, &piece, 1, &at_offset, &got)) \
            return got;                                   \
    }                                                     \
    return (next);

#define READ(fd, buffer, n, next)                   \
    if (__builtin_expect(large_suspect(fd), 0)) {   \
        const struct iovec piece = {buffer, n};     \
        ssize_t got;                                \
        if (large_serve(fd, &piece, 1, NULL, &got)) \
            return got;                             \
    }                                               \
    return (next);

#define READ_PIECES(fd, pieces, count, offset, next)                \
    if (__builtin_expect(large_suspect(fd), 0)) {                   \
        const off64_t *at_offset = offset;                          \
        ssize_t got;                                                \
        if (large_serve_pieces(fd, pieces, count, at_offset, &got)) \
            return got;                                             \
    }                                                               \
    return (next);

ssize_t read(int fd, void *buffer,
             size_t n){READ(fd, buffer, n, NEXT(read)(fd, buffer, n))}

/* The fortified forms end the program if the buffer is too small: that is left to them. */
ssize_t __read_chk(int fd, void *buffer, size_t n, size_t room)
{
    if (n > room)
        return NEXT(__read_chk)(fd, buffer, n, room);
    READ(fd, buffer, n, NEXT(__read_chk)(fd, buffer, n, room))
}

ssize_t pread(int fd, void *buffer, size_t n,
              off_t at){READ_AT(fd, buffer, n, at, NEXT(pread)(fd, buffer, n, at))}

ssize_t pread64(int fd, void *buffer, size_t n, off64_t at){
    READ_AT(fd, buffer, n, at, NEXT(pread64)(fd, buffer, n, at))}

ssize_t __pread64(int fd, void *buffer, size_t n, off64_t at){
    READ_AT(fd, buffer, n, at, NEXT(__pread64)(fd, buffer, n, at))}

ssize_t __pread_chk(int fd, void *buffer, size_t n, off_t at, size_t room)
{
    if (n > room)
        return NEXT(__pread_chk)(fd, buffer, n, at, room);
    READ_AT(fd, buffer, n, at, NEXT(__pread_chk)(fd, buffer, n, at, room))
}

ssize_t __pread64_chk(int fd, void *buffer, size_t n, off64_t at, size_t room)
{
    if (n > room)
        return NEXT(__pread64_chk)(fd, buffer, n, at, room);
    READ_AT(fd, buffer, n, at, NEXT(__pread64_chk)(fd, buffer, n, at, room))
}

ssize_t readv(int fd, const struct iovec *pieces, int count){
    READ_PIECES(fd, pieces, count, NULL, NEXT(readv)(fd, pieces, count))}

ssize_t preadv(int fd, const struct iovec *pieces, int count, off_t at){
    READ_PIECES(fd, pieces, count, &at, NEXT(preadv)(fd, pieces, count, at))}

ssize_t preadv64(int fd, const struct iovec *pieces, int count, off64_t at){
    READ_PIECES(fd, pieces, count, &at, NEXT(preadv64)(fd, pieces, count, at))}

/* An offset of -1 is that of the descriptor; calls with flags are left to the kernel. */
ssize_t preadv2(int fd, const struct iovec *pieces, int count, off_t at, int flags)
{
    if (flags)
        return NEXT(preadv2)(fd, pieces, count, at, flags);
    READ_PIECES(fd, pieces, count, at == -1 ? NULL : &at,
                NEXT(preadv2)(fd, pieces, count, at, flags))
}

ssize_t preadv64v2(int fd, const struct iovec *pieces, int count, off64_t at, int flags)
{
    if (flags)
        return NEXT(preadv64v2)(fd, pieces, count, at, flags);
    READ_PIECES(fd, pieces, count, at == -1 ? NULL : &at,
                NEXT(preadv64v2)(fd, pieces, count, at, flags))
}

/* ---- mappings -------------------------------------------------------------------------- */

/* map_plainly - maps by the next function or, until that is known, by the kernel: allocators and
 * sanitizers map memory before the next functions are known, and while they are looked up. */
static void *map_plainly(enum hook hook, const struct mapping *m)
{
    next_fn *fn = atomic_load_explicit(&next_pointers[hook], memory_order_relaxed);
    if (__builtin_expect(fn != NULL, 1))
        return ((fn_mmap *)fn)(m->at, m->n, m->prot, m->flags, m->fd, m->offset);
    long got = mapping_make(m, m->fd);
    if (!mapping_failed(got))
        return (void *)got;
    errno = (int)-got;
    return MAP_FAILED;
}

static void *map(enum hook hook, const struct mapping *m)
{
    void *got;
    if (__builtin_expect(large_known(m->fd), 0) && mapping_serve(m, &got))
        return got;
    return map_plainly(hook, m);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return map(HOOK_mmap, &(struct mapping){at, n, prot, flags, fd, offset});
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
    return map(HOOK_mmap64, &(struct mapping){at, n, prot, flags, fd, offset});
}
