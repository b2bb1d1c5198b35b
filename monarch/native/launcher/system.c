/* system.c - what the kernel tells of a process: its start, which shows a reused pid,
 * and its parent. */
#include "procstat.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_BYTES_MAX = 1024 };

/* find_field - reads /proc/PID/stat; returns a field of it, or NULL. They are counted
 * behind the last parenthesis, because the program's name may hold anything. */
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

/* procstat_stopped - whether a process stands still until it is continued. */
bool procstat_stopped(pid_t pid)
{
    char text[STAT_BYTES_MAX];
    const char *state = pid > 0 ? find_field(text, pid, 3) : NULL;

    return state && (state[1] == 'T' || state[1] == 't');
}

/* procstat_start - when a process was started, in ticks since the boot; 0 = unknown. */
uint64_t procstat_start(pid_t pid)
{
    return field_of(pid, 22);
}

/* procstat_parent - the parent of a process; 0 = unknown, or it has none. */
pid_t procstat_parent(pid_t pid)
{
    return (pid_t)field_of(pid, 4);
}
