/* system.c - clocks and descriptors. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STDIO_COUNT = 3, CLOSE_MAX = 1 << 20 };

/* -- Clocks and file times: system calls, because a preloaded library (libfaketime) may
 *    change what the functions of libc return. -- */

/* clock_now - returns the time of a clock. */
struct timespec clock_now(clockid_t clock)
{
    struct timespec now = {0};

    syscall(SYS_clock_gettime, clock, &now);
    return now;
}

/* clock_now_ms - returns the time since boot. */
long clock_now_ms(void)
{
    struct timespec now = clock_now(CLOCK_MONOTONIC);

    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* file_changed_after - whether a file was changed after a moment of CLOCK_REALTIME. */
bool file_changed_after(int fd, struct timespec moment)
{
    struct stat st;

    if (syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) < 0)
        return false;
    return st.st_mtim.tv_sec > moment.tv_sec ||
           (st.st_mtim.tv_sec == moment.tv_sec && st.st_mtim.tv_nsec > moment.tv_nsec);
}

/* -- Descriptors -- */

/* fd_above_stdio - moves a new descriptor away from 0, 1 and 2, which may have been closed before
 * the start. Takes ownership; returns the descriptor, or -errno of the call that created it. */
int fd_above_stdio(int fd)
{
    int moved, err;

    if (fd < 0)
        return -errno;
    if (fd >= STDIO_COUNT)
        return fd;
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STDIO_COUNT);
    err = -errno;
    close(fd);
    return moved < 0 ? err : moved;
}

/* close_range_of - closes first..last, both included. */
static void close_range_of(unsigned first, unsigned last)
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

/* fd_close_from - closes all descriptors from `first` on, except those in `kept`
 * (-1 = none). */
void fd_close_from(int first, const int *kept, int count)
{
    for (;;) {
        int next = -1;

        for (int i = 0; i < count; i++)
            if (kept[i] >= first && (next < 0 || kept[i] < next))
                next = kept[i];
        if (next < 0)
            break;
        if (next > first)
            close_range_of((unsigned)first, (unsigned)next - 1);
        first = next + 1;
    }
    close_range_of((unsigned)first, ~0u);
}
