/* fault.c - system calls of the engine that a test replaces. */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "dataplane/api/engine.h"
#include "dataplane/transfers/transfer.h"

ssize_t (*_Atomic fault_read)(int fd, void *buffer, size_t n);
ssize_t (*_Atomic fault_pread)(int fd, void *buffer, size_t n, off_t at);
ssize_t (*_Atomic fault_write)(int fd, const void *bytes, size_t n);
ssize_t (*_Atomic fault_pwrite)(int fd, const void *bytes, size_t n, off_t at);
int (*_Atomic fault_rename)(void);
int (*_Atomic fault_statx)(unsigned flags, unsigned mask, void *out);
int fault_unnamed, fault_itself;
_Atomic int fault_link;

int __real_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat(int dir, const char *path, int flags, mode_t mode);
int __real_linkat(int from, const char *old, int to, const char *new, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *new, int flags);
ssize_t __wrap_read(int fd, void *buffer, size_t n);
ssize_t __wrap_pread(int fd, void *buffer, size_t n, off_t at);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at);
long __wrap_syscall(long number, ...);

ssize_t __wrap_read(int fd, void *buffer, size_t n)
{
    ssize_t (*hook)(int, void *, size_t) = fault_read;
    return hook ? hook(fd, buffer, n) : __real_read(fd, buffer, n);
}

ssize_t __wrap_pread(int fd, void *buffer, size_t n, off_t at)
{
    ssize_t (*hook)(int, void *, size_t, off_t) = fault_pread;
    return hook ? hook(fd, buffer, n, at) : __real_pread(fd, buffer, n, at);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    ssize_t (*hook)(int, const void *, size_t) = fault_write;
    return hook ? hook(fd, bytes, n) : __real_write(fd, bytes, n);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    ssize_t (*hook)(int, const void *, size_t, off_t) = fault_pwrite;
    return hook ? hook(fd, bytes, n, at) : __real_pwrite(fd, bytes, n, at);
}

/* Like libc's, it takes six arguments, whatever their real number. */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    int (*hook)(void) = fault_rename;
    if (number == SYS_renameat2 && hook) {
        errno = hook();
        if (errno)
            return -1;
    }
    int (*answer)(unsigned, unsigned, void *) = fault_statx;
    if (number == SYS_statx && answer) {
        errno = answer((unsigned)a[2], (unsigned)a[3], (void *)a[4]);
        return errno ? -1 : 0;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __wrap_openat(int dir, const char *path, int flags, mode_t mode)
{
    if (fault_unnamed && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = fault_unnamed;
        return -1;
    }
    return __real_openat(dir, path, flags, mode);
}

int __wrap_linkat(int from, const char *old, int to, const char *new, int flags)
{
    if (fault_link) {
        errno = fault_link;
        return -1;
    }
    if (fault_itself && (flags & AT_EMPTY_PATH)) {
        errno = fault_itself;
        return -1;
    }
    return __real_linkat(from, old, to, new, flags);
}

void fault_none_slow(struct engine *e)
{
    for (uint32_t i = 0; i < e->job.root_count; i++)
        atomic_store(&e->transfers.roots[i].piece, READ_CHUNKS_MAX * CHUNK_BYTES);
}
