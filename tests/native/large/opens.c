/* opens.c - descriptors: opened, duplicated, closed in visible and invisible ways. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "play.h"

enum { DUP_FROM = 10, DUP_BELOW = 46, PIPE_TEXT = 100 };

/* hold - notes the result of a call, and prints the number. */
static void hold(long fd, enum kind kind, int file)
{
    say_result(fd);
    if (fd >= 0 && fd < SLOTS)
        slots[fd] = (struct slot){kind, file, files[file].changes};
}

static int open_relative(const char *path, int flags)
{
    return openat(folder_fd, path + strlen(path) - strlen("f00"), flags);
}

static int open_here(const char *path, int flags)
{
    return openat(AT_FDCWD, path, flags);
}

static int open_plain(const char *path, int flags)
{
    return open(path, flags);
}

static int open_large(const char *path, int flags)
{
    return open64(path, flags);
}

static int open_unseen(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags);
}

/* op_open - a file for reading. */
void op_open(void)
{
    static int (*const ways[])(const char *, int) = {
        open_plain, open_plain, open_here, open_relative, open_large, open_unseen,
    };
    static const int flags[] = {
        0,         0,        0,          O_CLOEXEC,  O_CLOEXEC,
        O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_SYNC | O_LARGEFILE,
        O_DIRECT,
    };
    int file = some_file(0);
    int way = (int)draw(sizeof(ways) / sizeof(*ways));
    int flag = flags[draw(sizeof(flags) / sizeof(*flags))];
    if (flag == O_DIRECT && !is_memory)
        flag = O_NOFOLLOW;
    say(" f%02d way %d flags %o", file, way, (unsigned)flag);
    hold(ways[way](files[file].path, O_RDONLY | flag), FILE_READ, file);
}

/* op_odd_open - opens that are refused, or return a descriptor that cannot be read. */
void op_odd_open(void)
{
    int file = some_file(0), writable = some_file(1);
    char path[PATH_BYTES + 8];
    switch (draw(7)) {
    case 0:
        say(" f%02d for writing", writable);
        hold(open(files[writable].path, O_WRONLY), FILE_NO_READ, writable);
        return;
    case 1:
        say(" f%02d as a path", file);
        hold(open(files[file].path, O_PATH), FILE_NO_READ, file);
        return;
    case 2:
        say(" f%02d as a directory", file);
        hold(open(files[file].path, O_RDONLY | O_DIRECTORY), FOLDER, file);
        return;
    case 3:
        say(" the directory");
        hold(openat(folder_fd, ".", O_RDONLY | O_DIRECTORY), FOLDER, file);
        return;
    case 4:
        say(" f%02d for both", writable);
        hold(open(files[writable].path, O_RDWR), FILE_READ, writable);
        return;
    case 5:
        snprintf(path, sizeof(path), "%s/", files[file].path);
        say(" f%02d with a slash", file);
        hold(open(path, O_RDONLY), FILE_READ, file);
        return;
    default:
        snprintf(path, sizeof(path), "%s.none", files[file].path);
        say(" no file");
        hold(open(path, O_RDONLY), FILE_READ, file);
    }
}

static int some_held(void)
{
    int fd = some_slot(draw(8) ? FILE_READ : FILE_NO_READ);
    return fd < 0 ? some_slot(FILE_READ) : fd;
}

/* op_dup - a second number for a descriptor; it may replace another. */
void op_dup(void)
{
    int fd = some_held(), to = DUP_FROM + (int)draw(DUP_BELOW - DUP_FROM);
    int number = -1;
    if (fd < 0) {
        say(" nothing");
        return;
    }
    struct slot slot = slots[fd];
    say(" %d for %d", fd, to);
    switch (draw(6)) {
    case 0:
        number = dup(fd);
        break;
    case 1:
        number = dup2(fd, to);
        break;
    case 2:
        number = dup3(fd, to, O_CLOEXEC);
        break;
    case 3:
        number = fcntl(fd, F_DUPFD, to);
        break;
    case 4:
        number = fcntl(fd, F_DUPFD_CLOEXEC, to);
        break;
    default:
        number = (int)syscall(SYS_dup3, fd, to, 0);
    }
    say_result(number);
    if (number >= 0 && number < SLOTS)
        slots[number] = slot;
}

/* op_reopen - a descriptor is reopened by its name in /proc: with its own offset. */
void op_reopen(void)
{
    char path[PATH_BYTES];
    int fd = some_slot(FILE_READ), file = slots[fd < 0 ? 0 : fd].file;
    if (fd < 0 || files[file].is_mutable) {
        say(" nothing");
        return;
    }
    snprintf(path, sizeof(path), "/%s/%d", draw(2) ? "proc/self/fd" : "dev/fd", fd);
    say(" %s", path);
    hold(open(path, O_RDONLY), FILE_READ, file);
}

static int close_as_stream(int fd)
{
    FILE *stream = fdopen(fd, "r");
    return stream ? fclose(stream) : close(fd);
}

/* op_close - in one of the ways, some of which no library call shows. */
void op_close(void)
{
    static const enum kind kinds[] = {FILE_READ, FILE_READ, FILE_NO_READ, PIPE, FOLDER};
    int fd = some_slot(kinds[draw(sizeof(kinds) / sizeof(*kinds))]);
    if (fd < 0) {
        say(" nothing");
        return;
    }
    int way = (int)draw(4);
    say(" %d way %d", fd, way);
    if (way == 0)
        say_result(close(fd));
    else if (way == 1)
        say_result(syscall(SYS_close, fd));
    else if (way == 2)
        say_result(syscall(SYS_close_range, fd, fd, 0));
    else
        say_result(slots[fd].kind == FILE_READ ? close_as_stream(fd) : close(fd));
    slots[fd].kind = NOTHING;
}

/* make_pipe - the reading end of a pipe with some bytes in it. */
static int make_pipe(void)
{
    char text[PIPE_TEXT];
    int ends[2];
    memset(text, 'p', sizeof(text));
    if (pipe2(ends, O_NONBLOCK))
        return -1;
    if (write(ends[1], text, sizeof(text)) < 0)
        return -1;
    close(ends[1]);
    return ends[0];
}

/* op_reuse - calls that no library shows reuse a number for something else. */
void op_reuse(void)
{
    int fd = some_slot(FILE_READ), other = some_slot(FILE_READ), file = some_file(0);
    if (fd < 0 || fd == other) {
        say(" nothing");
        return;
    }
    say(" %d", fd);
    switch (draw(3)) {
    case 0:
        syscall(SYS_close, fd);
        slots[fd].kind = NOTHING;
        say(" f%02d", file);
        hold(open_unseen(files[file].path, O_RDONLY), FILE_READ, file);
        return;
    case 1:
        other = make_pipe();
        slots[fd].kind = PIPE;
        say(" pipe");
        say_result(syscall(SYS_dup3, other, fd, 0));
        close(other);
        return;
    default:
        slots[fd] = slots[other];
        say(" as %d", other);
        say_result(syscall(SYS_dup3, other, fd, O_CLOEXEC));
    }
}
