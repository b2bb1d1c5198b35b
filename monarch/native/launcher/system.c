/* system.c - clocks, descriptors and processes, as the kernel reports them. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STDIO_COUNT = 3, CLOSE_MAX = 1 << 20, STAT_BYTES_MAX = 1024 };

/* -- Clocks and file times: system calls, because a preloaded library (libfaketime) may
 *    change what the functions of libc return. -- */

/* clock_now - the time of a clock. */
struct timespec clock_now(clockid_t clock)
{
    struct timespec now = {0};

    syscall(SYS_clock_gettime, clock, &now);
    return now;
}

/* clock_now_ms - the time since boot. */
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

/* fd_above_stdio - moves a new descriptor away from 0, 1 and 2, with which the launcher may
 * have been started closed. Takes ownership; returns the descriptor, or -errno of the
 * call that created it. */
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

/* -- Processes -- */

/* find_field - reads /proc/PID/stat; returns a field of it, or NULL. Fields are counted
 * from the last parenthesis, because the program's name may contain anything. */
static const char *find_field(char text[STAT_BYTES_MAX], pid_t pid, int wanted)
{
    const char *field;
    char path[32];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    n = read(fd, text, STAT_BYTES_MAX - 1);
    close(fd);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    field = strrchr(text, ')');
    for (int number = 2; field && number < wanted; number++)
        field = strchr(field + 1, ' ');
    return field;
}

/* field_of - a numeric field; 0 = unknown. */
static uint64_t field_of(pid_t pid, int wanted)
{
    char text[STAT_BYTES_MAX];
    const char *field = find_field(text, pid, wanted);

    return field ? strtoull(field, NULL, 10) : 0;
}

/* process_is_stopped - whether a process is stopped until it is continued. */
bool process_is_stopped(pid_t pid)
{
    char text[STAT_BYTES_MAX];
    const char *state = pid > 0 ? find_field(text, pid, 3) : NULL;

    return state && (state[1] == 'T' || state[1] == 't');
}

/* process_start_ticks - when a process started, in clock ticks since boot, which tells a
 * reused pid; 0 = unknown. */
uint64_t process_start_ticks(pid_t pid)
{
    return field_of(pid, 22);
}

/* process_parent - the parent of a process; 0 = unknown or none. */
pid_t process_parent(pid_t pid)
{
    return (pid_t)field_of(pid, 4);
}
