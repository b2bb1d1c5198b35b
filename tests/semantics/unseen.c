/* unseen.c - writes NEW into a file in a way named by its first word. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *at(void *rings, uint32_t offset)
{
    return (char *)rings + offset;
}

/* open_by_ring - opens a file by a ring of the kernel, with one entry; -1: none. */
static int open_by_ring(const char *path)
{
    struct io_uring_params p = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 1, &p);
    if (ring < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
        return -1;
    size_t length = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe) + 4096;
    int both = PROT_READ | PROT_WRITE;
    void *rings = mmap(NULL, length, both, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, sizeof(*entry), both, MAP_SHARED, ring,
                                      IORING_OFF_SQES);
    if (rings == MAP_FAILED || entry == MAP_FAILED)
        return -1;
    memset(entry, 0, sizeof(*entry));
    entry->opcode = IORING_OP_OPENAT;
    entry->fd = AT_FDCWD;
    entry->addr = (uint64_t)(uintptr_t)path;
    entry->open_flags = O_WRONLY;
    *(uint32_t *)at(rings, p.sq_off.array) = 0;
    __atomic_store_n((uint32_t *)at(rings, p.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        return -1;
    return ((struct io_uring_cqe *)at(rings, p.cq_off.cqes))->res;
}

int main(int argc, char **argv)
{
    const char *way = argc == 3 ? argv[1] : "", *path = argv[argc - 1];
    int fd = -1;
    if (strcmp(way, "libc") == 0)
        fd = open(path, O_WRONLY);
    if (strcmp(way, "raw") == 0)
        fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY);
    if (strcmp(way, "ring") == 0)
        fd = open_by_ring(path);
    if (strcmp(way, "mount") == 0) /* "other" beside the root over "sub" in it */
        return chdir(path) || mount("../other", "sub", NULL, MS_BIND, NULL);
    return fd < 0 || write(fd, "NEW", 3) != 3;
}
