/* inherited.c - the descriptors with which we were started, open for writing. The program
 * may write through them where no Shim sees it: a static one, or a child of it. */
#include "inherited.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "descriptor.h"
#include "shared/layout.h"
#include "shared/written.h"

enum { INHERITED_MAX = 64, WITHOUT_PROC_MAX = 64 };

struct inode_of {
    uint64_t dev, ino;
};

struct inherited {
    struct inode_of files[INHERITED_MAX];
    int count;
};

/* add - notes a descriptor that the program inherits, and can write a file by. */
static void add(struct inherited *found, int fd)
{
    int flags = fcntl(fd, F_GETFL), own = fcntl(fd, F_GETFD);
    struct stat st;

    if (flags < 0 || own < 0 || (own & FD_CLOEXEC) || (flags & O_PATH) ||
        (flags & O_ACCMODE) == O_RDONLY || found->count == INHERITED_MAX)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode))
        found->files[found->count++] = (struct inode_of){st.st_dev, st.st_ino};
}

static void find(struct inherited *found)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *one;

    for (int fd = 0; !all && fd < WITHOUT_PROC_MAX; fd++)
        add(found, fd);
    while (all && (one = readdir(all)))
        if (one->d_name[0] != '.')
            add(found, atoi(one->d_name));
    if (all)
        closedir(all);
}

/* map - maps a segment; NULL unless it is whole and of our version. */
static struct segment *map(int run_fd, const char *name, uint32_t kind, int protection)
{
    const size_t least = kind == SEGMENT_CATALOG ? sizeof(struct catalog)
                                                 : sizeof(struct flags);
    int mode = protection & PROT_WRITE ? O_RDWR : O_RDONLY;
    int fd = descriptor_keep(openat(run_fd, name, mode | O_NOFOLLOW | O_CLOEXEC));
    struct segment *seg = MAP_FAILED;
    struct stat st;

    if (fd < 0)
        return NULL;
    if (!fstat(fd, &st) && (size_t)st.st_size >= least)
        seg = mmap(NULL, (size_t)st.st_size, protection, MAP_SHARED, fd, 0);
    close(fd);
    if (seg == MAP_FAILED)
        return NULL;
    if (!memcmp(seg->magic, "MONARCH", sizeof(seg->magic)) && seg->kind == kind &&
        seg->version == LAYOUT_VERSION && seg->length == (uint64_t)st.st_size)
        return seg;
    munmap(seg, (size_t)st.st_size);
    return NULL;
}

static void unmap(struct segment *seg)
{
    if (seg)
        munmap(seg, seg->length);
}

/* inherited_mark - marks what the program can write to from its start. Costs nothing
 * more than a look at the descriptors where no file is open for writing. */
void inherited_mark(int run_fd)
{
    struct inherited found = {.count = 0};
    struct segment *cat, *flags;

    find(&found);
    if (!found.count)
        return;
    cat = map(run_fd, "catalog", SEGMENT_CATALOG, PROT_READ);
    flags = map(run_fd, "flags", SEGMENT_FLAGS, PROT_READ | PROT_WRITE);
    if (cat && flags && cat->generation == flags->generation)
        for (int i = 0; i < found.count; i++)
            written_mark_inode((const struct catalog *)cat, (struct flags *)flags,
                               found.files[i].dev, found.files[i].ino);
    unmap(cat);
    unmap(flags);
}
