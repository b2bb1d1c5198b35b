/* maps_itself.c - a library that replaces mmap(), as allocators with statistics do. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
