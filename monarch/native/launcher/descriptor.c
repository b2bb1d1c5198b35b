/* descriptor.c - descriptors of ours, above those that belong to the program. */
#include "descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STANDARD_COUNT = 3, CLOSE_MAX = 1 << 20 };

/* descriptor_keep - moves a new descriptor away from 0, 1 and 2, which a program may have
 * been started without. Takes ownership; returns the descriptor or -errno of the call
 * that has made it. */
int descriptor_keep(int fd)
{
    int moved, err;

    if (fd < 0)
        return -errno;
    if (fd >= STANDARD_COUNT)
        return fd;
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STANDARD_COUNT);
    err = -errno;
    close(fd);
    return moved < 0 ? err : moved;
}

/* close_between - closes first..last, both included. */
static void close_between(unsigned first, unsigned last)
{
    struct rlimit limit = {.rlim_cur = CLOSE_MAX};

#ifdef SYS_close_range
    if (!syscall(SYS_close_range, first, last, 0u))
        return;
#endif
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur > CLOSE_MAX)
        limit.rlim_cur = CLOSE_MAX;
    for (unsigned fd = first; fd <= last && fd < limit.rlim_cur; fd++)
        close((int)fd);
}

/* descriptor_close_from - closes all descriptors from `first` on, except those in `kept`
 * (-1 = none). */
void descriptor_close_from(int first, const int *kept, int count)
{
    for (;;) {
        int next = -1;

        for (int i = 0; i < count; i++)
            if (kept[i] >= first && (next < 0 || kept[i] < next))
                next = kept[i];
        if (next < 0)
            break;
        if (next > first)
            close_between((unsigned)first, (unsigned)next - 1);
        first = next + 1;
    }
    close_between((unsigned)first, ~0u);
}
