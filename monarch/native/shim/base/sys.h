/* sys.h - system calls of our own: no errno, no cancellation, no other interposer. */
#ifndef MONARCH_SYS_H
#define MONARCH_SYS_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct sys_values { /* of a system call */
    long a, b, c, d, e, f;
};

/* sys_call_all - returns what the kernel returns: a result, or -errno. */
static inline long sys_call_all(long number, const struct sys_values v)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = v.d;
    register long r8 __asm__("r8") = v.e;
    register long r9 __asm__("r9") = v.f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(v.a), "S"(v.b), "d"(v.c), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = v.a;
    register long x1 __asm__("x1") = v.b;
    register long x2 __asm__("x2") = v.c;
    register long x3 __asm__("x3") = v.d;
    register long x4 __asm__("x4") = v.e;
    register long x5 __asm__("x5") = v.f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#else
#error "the Shim knows x86-64 and aarch64"
#endif
}

/* sys_call - does the same with up to five values. */
static inline long sys_call(long number, long a, long b, long c, long d, long e)
{
    return sys_call_all(number, (struct sys_values){a, b, c, d, e, 0});
}

static inline int sys_openat(int dirfd, const char *path, int flags)
{
    return (int)sys_call(SYS_openat, dirfd, (long)path, flags, 0, 0);
}

static inline int sys_close(int fd)
{
    return (int)sys_call(SYS_close, fd, 0, 0, 0, 0);
}

static inline int sys_fstat(int fd, struct stat *out)
{
    return (int)sys_call(SYS_fstat, fd, (long)out, 0, 0, 0);
}

static inline int sys_stat(int dirfd, const char *path, struct stat *out, int flags)
{
    return (int)sys_call(SYS_newfstatat, dirfd, (long)path, (long)out, flags, 0);
}

/* sys_readlink - returns the length of the link, whose text is not terminated, or -errno. */
static inline long sys_readlink(const char *path, char *out, size_t bytes)
{
    return sys_call(SYS_readlinkat, AT_FDCWD, (long)path, (long)out, (long)bytes, 0);
}

enum { FD_NAME_BYTES = 32 };

/* sys_name - writes a name with a number in it. */
static inline void sys_name(char *out, const char *before, unsigned number,
                            const char *behind)
{
    char digits[16];
    size_t n = 0;
    while (*before)
        *out++ = *before++;
    for (unsigned left = number; n == 0 || left; left /= 10)
        digits[n++] = (char)('0' + left % 10);
    while (n > 0)
        *out++ = digits[--n];
    while (*behind)
        *out++ = *behind++;
    *out = 0;
}

/* sys_fd_name - writes the name of a descriptor in /proc. */
static inline void sys_fd_name(char out[FD_NAME_BYTES], int fd)
{
    sys_name(out, "/proc/self/fd/", (unsigned)fd, "");
}

/* System calls, because other preloaded libraries may return other ids than the kernel. */
static inline uid_t sys_geteuid(void)
{
    return (uid_t)sys_call(SYS_geteuid, 0, 0, 0, 0, 0);
}

static inline uid_t sys_getuid(void)
{
    return (uid_t)sys_call(SYS_getuid, 0, 0, 0, 0, 0);
}

static inline uint32_t sys_getpid(void)
{
    return (uint32_t)sys_call(SYS_getpid, 0, 0, 0, 0, 0);
}

#endif
