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
#include "shared/catalog.h"
#include "shared/layout.h"

enum { WITHOUT_PROC_MAX = 64 };

/* What marking needs, mapped when the first file is found. */
struct marks {
    int run_fd;
    bool tried;
    struct segment *cat, *flags;
};

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

/* ready - whether files can be marked: there is a catalog by now. */
static bool ready(struct marks *marks)
{
    const int both = PROT_READ | PROT_WRITE;

    if (!marks->tried) {
        marks->tried = true;
        marks->cat = map(marks->run_fd, "catalog", SEGMENT_CATALOG, PROT_READ);
        marks->flags = map(marks->run_fd, "flags", SEGMENT_FLAGS, both);
    }
    return marks->cat && marks->flags &&
           marks->cat->generation == marks->flags->generation;
}

/* look - marks the file of a descriptor that the program inherits, and can write by. */
static void look(struct marks *marks, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    struct stat st;

    if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY ||
        fstat(fd, &st) || !S_ISREG(st.st_mode) || fcntl(fd, F_GETFD) & FD_CLOEXEC)
        return;
    if (ready(marks))
        written_mark_inode((const struct catalog *)marks->cat,
                           (struct flags *)marks->flags, st.st_dev, st.st_ino);
}

/* inherited_mark - marks what the program can write to from its start. Costs nothing
 * more than a look at the descriptors where no file is open for writing. */
void inherited_mark(int run_fd)
{
    struct marks marks = {.run_fd = run_fd};
    DIR *all = opendir("/proc/self/fd");
    struct dirent *one;

    for (int fd = 0; !all && fd < WITHOUT_PROC_MAX; fd++)
        look(&marks, fd);
    while (all && (one = readdir(all)))
        if (one->d_name[0] != '.')
            look(&marks, atoi(one->d_name));
    if (all)
        closedir(all);
    unmap(marks.cat);
    unmap(marks.flags);
}
