/* fault.h - system calls of the engine that a test replaces (linked with --wrap). */
#ifndef TEST_FAULT_H
#define TEST_FAULT_H

#include <sys/types.h>

struct engine;

/* NULL: the real call. */
extern ssize_t (*_Atomic fault_read)(int fd, void *buffer, size_t n);
extern ssize_t (*_Atomic fault_write)(int fd, const void *bytes, size_t n);
extern ssize_t (*_Atomic fault_pread)(int fd, void *buffer, size_t n, off_t at);
extern ssize_t (*_Atomic fault_pwrite)(int fd, const void *bytes, size_t n, off_t at);
extern int (*_Atomic fault_rename)(void); /* 0: the real call, else errno */
extern int (*_Atomic fault_statx)(unsigned flags, unsigned mask, void *out); /* errno */
extern int fault_unnamed;      /* errno of every O_TMPFILE, 0: the real call */
extern int fault_itself;       /* errno of every link by descriptor */
extern _Atomic int fault_link; /* errno of every link */

/* fault_none_slow - the rates of the origins are known: each read is one of a whole chunk. */
void fault_none_slow(struct engine *e);

long __real_syscall(long number, ...);
ssize_t __real_read(int fd, void *buffer, size_t n);
ssize_t __real_pread(int fd, void *buffer, size_t n, off_t at);
ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);

#endif
