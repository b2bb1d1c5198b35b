/* procstat.c - what the kernel tells of a process: its start, which shows a reused pid,
 * and its parent. */
#include "procstat.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* field_of - reads a numeric field of /proc/PID/stat; 0 = unknown. The fields are counted
 * behind the last parenthesis, because the program's name may hold anything. */
static uint64_t field_of(pid_t pid, int wanted)
{
    char path[32], text[1024];
    const char *field;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    field = strrchr(text, ')');
    for (int number = 2; field && number < wanted; number++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
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
