/* clock.h - the kernel's own time: a preloaded library may show programs another one. */
#ifndef MONARCH_LAUNCHER_CLOCK_H
#define MONARCH_LAUNCHER_CLOCK_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* clock_now - the time of a clock. */
static inline struct timespec clock_now(clockid_t clock)
{
    struct timespec now = {0};

    syscall(SYS_clock_gettime, clock, &now);
    return now;
}

/* clock_now_ms - the time since the boot. */
static inline long clock_now_ms(void)
{
    struct timespec now = clock_now(CLOCK_MONOTONIC);

    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* clock_changed_after - whether a file was changed after a moment of CLOCK_REALTIME. */
static inline bool clock_changed_after(int fd, struct timespec moment)
{
    struct stat st;

    if (syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) < 0)
        return false;
    return st.st_mtim.tv_sec > moment.tv_sec ||
           (st.st_mtim.tv_sec == moment.tv_sec && st.st_mtim.tv_nsec > moment.tv_nsec);
}

#endif
