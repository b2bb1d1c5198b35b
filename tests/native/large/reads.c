/* reads.c - the calls that read, and those that move the offset. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "play.h"

enum { PIECES_MAX = 5, GUARD = 64, GUARD_BYTE = 0x5a, PAGE = 4096, HIGH = 1 << 8 };

/* Called by fortified programs. */
extern ssize_t __read_chk(int fd, void *out, size_t n, size_t left);
extern ssize_t __pread_chk(int fd, void *out, size_t n, off_t at, size_t left);
extern ssize_t __pread64_chk(int fd, void *out, size_t n, off_t at, size_t left);

/* split - the room as pieces of random sizes; returns how many. */
static int split(struct iovec pieces[PIECES_MAX], size_t n)
{
    int count = 1 + (int)draw(PIECES_MAX);
    char *at = room;
    for (int i = 0; i < count; i++) {
        size_t part = i == count - 1 ? n : (draw(4) ? draw(n + 1) : 0);
        pieces[i] = (struct iovec){at, part};
        at += part;
        n -= part;
    }
    return count;
}

static ssize_t by_read(int fd, size_t n, off_t at)
{
    (void)at;
    return read(fd, room, n);
}

static ssize_t by_read_chk(int fd, size_t n, off_t at)
{
    (void)at;
    return __read_chk(fd, room, n, ROOM);
}

static ssize_t by_readv(int fd, size_t n, off_t at)
{
    struct iovec pieces[PIECES_MAX];
    (void)at;
    return readv(fd, pieces, split(pieces, n));
}

static ssize_t by_preadv2_here(int fd, size_t n, off_t at)
{
    struct iovec pieces[PIECES_MAX];
    (void)at;
    return preadv2(fd, pieces, split(pieces, n), -1, 0);
}

static ssize_t by_unseen_read(int fd, size_t n, off_t at)
{
    (void)at;
    return syscall(SYS_read, fd, room, n);
}

static ssize_t by_pread(int fd, size_t n, off_t at)
{
    return pread(fd, room, n, at);
}

static ssize_t by_pread64(int fd, size_t n, off_t at)
{
    return pread64(fd, room, n, at);
}

static ssize_t by_pread_chk(int fd, size_t n, off_t at)
{
    return __pread_chk(fd, room, n, at, ROOM);
}

static ssize_t by_pread64_chk(int fd, size_t n, off_t at)
{
    return __pread64_chk(fd, room, n, at, ROOM);
}

static ssize_t by_preadv(int fd, size_t n, off_t at)
{
    struct iovec pieces[PIECES_MAX];
    return preadv(fd, pieces, split(pieces, n), at);
}

static ssize_t by_preadv64(int fd, size_t n, off_t at)
{
    struct iovec pieces[PIECES_MAX];
    return preadv64(fd, pieces, split(pieces, n), at);
}

static ssize_t by_preadv2(int fd, size_t n, off_t at)
{
    struct iovec pieces[PIECES_MAX];
    return preadv2(fd, pieces, split(pieces, n), at, 0);
}

static ssize_t by_preadv64v2(int fd, size_t n, off_t at)
{
    struct iovec pieces[PIECES_MAX];
    return preadv64v2(fd, pieces, split(pieces, n), at, RWF_HIPRI);
}

static ssize_t by_unseen_pread(int fd, size_t n, off_t at)
{
    return syscall(SYS_pread64, fd, room, n, at);
}

/* by_stream - a stream of a second number, which ends at the program's position. */
static ssize_t by_stream(int fd, size_t n, off_t at)
{
    (void)at;
    int number = fcntl(fd, F_DUPFD, HIGH);
    FILE *stream = number < 0 ? NULL : fdopen(number, "r");
    if (!stream)
        return -1;
    ssize_t count = (ssize_t)fread(room, 1, n, stream);
    if (ferror(stream))
        count = -1;
    fclose(stream);
    errno = UNTOUCHED; /* a stream does not report it */
    return count;
}

typedef ssize_t (*reader)(int fd, size_t n, off_t at);
static const reader readers[] = {
    by_read,     by_read,    by_read,         by_read_chk,     by_readv,
    by_readv,    by_stream,  by_preadv2_here, by_unseen_read,  by_pread,
    by_pread,    by_pread64, by_pread_chk,    by_pread64_chk,  by_preadv,
    by_preadv64, by_preadv2, by_preadv64v2,   by_unseen_pread,
};

/* op_read - one of the calls that read, on any kind of descriptor. */
void op_read(void)
{
    static const enum kind kinds[] = {PIPE, FOLDER, FILE_NO_READ};
    int fd = some_slot(draw(12) ? FILE_READ : kinds[draw(3)]);
    if (fd < 0) {
        op_open();
        return;
    }
    if (slots[fd].kind == FILE_READ && is_stale(fd)) {
        judge_stale(fd);
        return;
    }
    size_t n = some_size();
    off_t at = some_place(size_of(&files[slots[fd].file]));
    uint64_t way = draw(sizeof(readers) / sizeof(*readers));
    say(" %d way %d %zu %lld", fd, (int)way, n, (long long)at);
    memset(room + n, GUARD_BYTE, GUARD);
    errno = UNTOUCHED;
    ssize_t count = readers[way](fd, n, at);
    say_result(count);
    say_bytes(room, count);
    for (int i = 0; i < GUARD; i++)
        if (room[n + (size_t)i] != GUARD_BYTE)
            say(" WRONG: byte %d behind the buffer", i);
}

/* op_seek - anywhere, in any way. */
void op_seek(void)
{
    static const int whences[] = {SEEK_SET, SEEK_SET,  SEEK_SET,  SEEK_CUR, SEEK_CUR,
                                  SEEK_END, SEEK_DATA, SEEK_HOLE, 99};
    static const off_t odd[] = {-1, INT64_MIN, (off_t)1 << 42, -BLOCK, INT64_MAX};
    int fd = some_slot(FILE_READ);
    if (fd < 0 || is_stale(fd)) {
        say(" nothing");
        return;
    }
    int whence = whences[draw(sizeof(whences) / sizeof(*whences))];
    off_t size = size_of(&files[slots[fd].file]), to = some_place(size);
    if (draw(8) == 0)
        to = odd[draw(sizeof(odd) / sizeof(*odd) - !is_memory)];
    else if (whence == SEEK_CUR)
        to = (off_t)draw(3 * BLOCK) - BLOCK;
    else if (whence == SEEK_END)
        to -= size;
    say(" %d to %lld by %d", fd, (long long)to, whence);
    say_result(lseek(fd, to, whence));
}

/* was_interrupted - by a signal, as a plain file's sendfile and splice may be. */
static int was_interrupted(ssize_t count)
{
    if (count >= 0 || errno != EINTR)
        return 0;
    errno = UNTOUCHED;
    return 1;
}

/* pour - moves up to n bytes of a descriptor into a file in memory by a system call. */
static ssize_t pour(int fd, off_t *at, int into, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t count = sendfile(into, fd, at, n - done);
        if (was_interrupted(count))
            continue;
        if (count <= 0)
            return done ? (ssize_t)done : count;
        done += (size_t)count;
    }
    return (ssize_t)done;
}

/* splice_out - the same through a pipe, a piece at a time. */
static ssize_t splice_out(int fd, off_t *at, size_t n)
{
    int ends[2];
    size_t done = 0;
    if (pipe(ends))
        return -1;
    while (done < n) {
        size_t piece = n - done < BLOCK / 8 ? n - done : BLOCK / 8;
        ssize_t count = splice(fd, at, ends[1], NULL, piece, 0);
        if (was_interrupted(count))
            continue;
        if (count <= 0 || read(ends[0], room + done, (size_t)count) != count)
            break;
        done += (size_t)count;
    }
    close(ends[0]);
    close(ends[1]);
    return (ssize_t)done;
}

/* op_move - sendfile and splice out of a file, at its offset or elsewhere. */
void op_move(void)
{
    int fd = some_slot(FILE_READ);
    if (fd < 0 || is_stale(fd)) {
        say(" nothing");
        return;
    }
    size_t n = some_size();
    off_t at = some_place(size_of(&files[slots[fd].file]));
    off_t *place = at >= 0 && draw(2) ? &at : NULL;
    int splicing = draw(3) == 0;
    say(" %d %s %zu %lld", fd, splicing ? "splice" : "sendfile", n,
        place ? (long long)at : -1);
    if (splicing) {
        ssize_t count = splice_out(fd, place, n);
        say_result(count);
        say_bytes(room, count);
    } else {
        int into = memfd_create("poured", 0);
        ssize_t count = pour(fd, place, into, n);
        say_result(count);
        say_bytes(room, pread(into, room, n, 0));
        close(into);
    }
    say(" %lld", (long long)at);
}

/* op_exec - another program continues to read with the same descriptor. */
void op_exec(void)
{
    char size[32];
    int fd = some_slot(FILE_READ);
    if (fd < 0 || is_stale(fd)) {
        say(" nothing");
        return;
    }
    snprintf(size, sizeof(size), "bs=%zu", 1 + some_size());
    say(" %d dd %s", fd, size);
    int into = memfd_create("read", 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 0);
        dup2(into, 1);
        execlp("dd", "dd", size, "count=2", "status=none", NULL);
        _exit(127);
    }
    say_result(wait_for(child));
    say_bytes(room, pread(into, room, ROOM, 0));
    say(" at %lld", (long long)lseek(fd, 0, SEEK_CUR));
    close(into);
}

/* op_map - a part of a file as memory. */
void op_map(void)
{
    int fd = some_slot(FILE_READ);
    if (fd < 0 || is_stale(fd)) {
        say(" nothing");
        return;
    }
    off_t size = size_of(&files[slots[fd].file]);
    off_t at = (off_t)draw((uint64_t)size) / PAGE * PAGE;
    size_t n = 1 + draw(2 * BLOCK);
    if ((off_t)n > size - at)
        n = (size_t)(size - at);
    say(" %d %zu %lld", fd, n, (long long)at);
    char *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, at);
    say_result(map == MAP_FAILED);
    if (map == MAP_FAILED)
        return;
    say_bytes(map, (ssize_t)n);
    munmap(map, n);
}

/* op_ask - fstat, and calls that change nothing or are refused. */
void op_ask(void)
{
    struct stat st = {0};
    int fd = some_slot(FILE_READ);
    if (fd < 0 || is_stale(fd) || files[slots[fd].file].is_mutable) {
        say(" nothing");
        return;
    }
    say(" %d fstat", fd);
    say_result(fstat(fd, &st));
    say(" %llu %llu %lld %o %lld.%ld", (unsigned long long)st.st_dev,
        (unsigned long long)st.st_ino, (long long)st.st_size, st.st_mode,
        (long long)st.st_mtime, st.st_mtim.tv_nsec);
    say_result(write(fd, room, 10));
    say_result(ftruncate(fd, 5));
    say_result(posix_fadvise(fd, 0, BLOCK, POSIX_FADV_WILLNEED));
    say_result(fcntl(fd, F_GETFL) & O_ACCMODE);
}
