/* procfs.c - the state, parent, start and command line of a process, as /proc has them. */
#include "job/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_BYTES_MAX = 1024 };

/* read_proc - reads a file of /proc/PID; returns its length, 0 = unknown. */
static size_t read_proc(pid_t pid, const char *name, char *bytes, size_t max)
{
    char path[48];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, bytes, max);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* find_field - returns a field of a stat file of /proc/PID, or NULL. Fields are counted from the
 * last parenthesis, because the program's name may contain anything. */
static const char *find_field(char text[STAT_BYTES_MAX], pid_t pid, const char *name,
                              int wanted)
{
    size_t n = read_proc(pid, name, text, STAT_BYTES_MAX - 1);
    const char *field;

    text[n] = '\0';
    field = strrchr(text, ')');
    for (int number = 2; field && number < wanted; number++)
        field = strchr(field + 1, ' ');
    return field;
}

/* number_field - returns a numeric field; 0 = unknown. It reads the main thread's, because an
 * emulator (qemu-user) makes up /proc/PID/stat of its own process. */
static uint64_t number_field(pid_t pid, int wanted)
{
    char text[STAT_BYTES_MAX], name[32];
    const char *field;

    snprintf(name, sizeof(name), "task/%d/stat", (int)pid);
    field = find_field(text, pid, name, wanted);

    return field ? strtoull(field, NULL, 10) : 0;
}

/* process_is_stopped - whether a process is stopped until it is continued. */
bool process_is_stopped(pid_t pid)
{
    char text[STAT_BYTES_MAX];
    const char *state = pid > 0 ? find_field(text, pid, "stat", 3) : NULL;

    return state && (state[1] == 'T' || state[1] == 't');
}

/* process_start_ticks - returns when a process started, in clock ticks since boot, by which a
 * reused pid is detected; 0: unknown. */
uint64_t process_start_ticks(pid_t pid)
{
    return number_field(pid, 22);
}

/* process_parent - returns the parent of a process; 0 = unknown or none. */
pid_t process_parent(pid_t pid)
{
    return (pid_t)number_field(pid, 4);
}

/* process_command - reads a command line of at most max - 2 bytes: words that end in NUL,
 * then an empty one. Returns its length, 0 = unknown. */
size_t process_command(pid_t pid, char *words, size_t max)
{
    size_t n = read_proc(pid, "cmdline", words, max - 2);

    memset(words + n, 0, 2);
    return n;
}
