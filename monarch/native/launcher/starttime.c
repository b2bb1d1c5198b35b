/* starttime.c - when a process was started, so that a reused pid is not mistaken for it. */
#include "starttime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* starttime_of - reads field 22 of /proc/PID/stat; 0 = unknown. The fields are counted
 * behind the last parenthesis, because the program's name may hold anything. */
uint64_t starttime_of(pid_t pid)
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
    for (int number = 2; field && number < 22; number++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}
