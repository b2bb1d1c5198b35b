/* share.c - threads of two processes read a file by one offset: each byte once.
 *
 *     share FILE ...
 *
 * names files as play.c makes them. Exit status 1, with a line for each fault: a byte that
 * two reads or no read returned, wrong bytes, an error, an end before the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "words.h"

enum {
    PROCESSES = 2,
    THREADS = 4,
    PIECES_MAX = 1 << 16,
    LEAST = 2 * WORD, /* enough to identify an offset */
    MOST = 1 << 20,
    FEW = 1 << 13,
};

struct piece {
    off_t at, end;
};

/* The bytes read of one file, in memory that all processes share. */
static struct account {
    atomic_size_t count;
    atomic_ulong faults;
    struct piece pieces[PIECES_MAX];
} * account;

static const char *path;
static unsigned file_number;
static off_t size;
static int fd;

static void complain(const char *what, off_t at, ssize_t n)
{
    if (atomic_fetch_add(&account->faults, 1) < 8)
        fprintf(stderr, "%s: %s: %zd bytes at %lld, error %d\n", path, what, n,
                (long long)at, errno);
}

/* place_of - the offset of bytes in the file; -1: nowhere. */
static off_t place_of(const char *bytes, ssize_t n)
{
    for (int skip = 0; n >= LEAST - 1 && skip < WORD; skip++) {
        struct word told = told_by(load_word(bytes + skip));
        if (told.file == file_number && told.version == 0)
            return (off_t)told.place * WORD - skip;
    }
    return n < LEAST - 1 ? size - n : -1; /* so few only at the end */
}

static void note(const char *bytes, ssize_t n)
{
    struct word of = {file_number, 0, 0};
    off_t at = place_of(bytes, n);
    if (at < 0 || wrong_word(bytes, (size_t)n, at, of) >= 0) {
        complain("wrong bytes", at, n);
        return;
    }
    size_t number = atomic_fetch_add(&account->count, 1);
    if (number < PIECES_MAX)
        account->pieces[number] = (struct piece){at, at + n};
}

extern ssize_t __read_chk(int number, void *out, size_t n, size_t left);

/* read_some - by a call that moves the offset; no library shows one of these calls. */
static ssize_t read_some(char *room, size_t n, uint64_t way)
{
    struct iovec pieces[3] = {
        {room, n / 3}, {room + n / 3, 0}, {room + n / 3, n - n / 3}};
    switch (way % 8) {
    case 0:
        return syscall(SYS_read, fd, room, n);
    case 1:
    case 2:
        return readv(fd, pieces, 3);
    case 3:
        return preadv2(fd, pieces, 3, -1, 0);
    case 4:
        return __read_chk(fd, room, n, MOST);
    default:
        return read(fd, room, n);
    }
}

static void *run_thread(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed;
    char *room = malloc(MOST);
    for (;;) {
        random = mix(random + 0x9e3779b97f4a7c15u);
        size_t n = LEAST + random % (random >> 60 ? FEW : MOST - LEAST);
        errno = 0;
        ssize_t count = read_some(room, n, random >> 32);
        if (count < 0)
            complain("an error", -1, count);
        if (count <= 0)
            break;
        note(room, count);
    }
    free(room);
    return NULL;
}

static void run_threads(uintptr_t seed)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_thread, (void *)(seed * THREADS + i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int by_place(const void *one, const void *other)
{
    off_t a = ((const struct piece *)one)->at, b = ((const struct piece *)other)->at;
    return a < b ? -1 : a > b;
}

static void settle(void)
{
    size_t count = account->count;
    off_t at = 0, now = lseek(fd, 0, SEEK_CUR);
    if (count > PIECES_MAX)
        complain("too many reads", 0, (ssize_t)count);
    qsort(account->pieces, count, sizeof(*account->pieces), by_place);
    for (size_t i = 0; i < count && i < PIECES_MAX; i++) {
        struct piece piece = account->pieces[i];
        if (piece.at != at)
            complain(piece.at < at ? "read twice" : "not read", at, piece.at - at);
        at = piece.end;
    }
    if (at != size)
        complain("not read to the end", at, size - at);
    if (now != size)
        complain("the offset is not at the end", now, size);
}

static int share(const char *name)
{
    struct stat st;
    path = name;
    file_number = (unsigned)strtoul(name + strlen(name) - 2, NULL, 10) + 1;
    fd = open(name, O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        return 1;
    size = st.st_size;
    account->count = account->faults = 0;
    for (uintptr_t i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            run_threads(i);
            _exit(0);
        }
    for (int i = 0, status; i < PROCESSES; i++)
        if (wait(&status) < 0 || status)
            complain("a process has ended", 0, status);
    settle();
    printf("%s %zu reads\n", name, account->count);
    close(fd);
    return account->faults != 0;
}

int main(int argc, char **argv)
{
    int faults = 0;
    account = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 1; i < argc; i++)
        faults |= share(argv[i]);
    return argc < 2 ? 2 : faults;
}
