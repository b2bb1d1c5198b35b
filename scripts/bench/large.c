/* large.c - reads large files as programs do, and says how long it took.
 *
 *   large order EPOCHS COMPUTE_US FILE ...   each file from its start, a Block at a time
 *   large sparse EPOCHS PERCENT PIECE FILE   pieces that begin anywhere, some of all, in a new
 *                                            random order each time
 *   large first PAUSE_MS FILE ...            the first Block of each but the first file
 *   large calls ROUNDS BYTES FILE            preads of what has been read before
 *
 * `order` and `sparse` print a line per epoch: seconds, seconds waited behind the first
 * Extent of each file, bytes. `first` prints the seconds of open and read, a line per file;
 * `calls` the nanoseconds per call, a line per round. With COMPUTE_US the program pauses so
 * long after each 4 MiB. Before each first Block it reads on in the first file, as a link
 * that has been idle would give the Block at once. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    BLOCK = 256 << 10,
    EXTENT = 8 << 20,
    STRIDE = 4 << 20,
    BEFORE = 4 * BLOCK,
    PICKS_MAX = 1 << 17,
    SHIFT = 1234, /* of pieces: none is aligned */
    PIECE_MAX = 1 << 20,
    CALLS_BYTES = 32 << 20, /* of one round */
    CALLS_MAX = 100000,
};

static char buffer[PIECE_MAX];
static char **files;
static int file_count;
static uint64_t random_state = 88172645463325252ull;

static struct pick {
    int fd;
    off_t at;
} picks[PICKS_MAX];

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int open_file(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        fail(path);
    return fd;
}

static off_t size_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        fail("fstat");
    return st.st_size;
}

static double read_at(int fd, off_t at, size_t n)
{
    double begin = now_s();
    if (pread(fd, buffer, n, at) != (ssize_t)n)
        fail("pread");
    return now_s() - begin;
}

static void order(int epochs, unsigned compute_us)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        double begin = now_s(), waited = 0, bytes = 0;
        for (int i = 0; i < file_count; i++) {
            int fd = open_file(files[i]);
            off_t size = size_of(fd);
            for (off_t at = 0; at < size; at += BLOCK) {
                double spent = read_at(fd, at, BLOCK);
                waited += at < EXTENT ? 0 : spent;
                if (compute_us && at % STRIDE == STRIDE - BLOCK)
                    usleep(compute_us);
            }
            bytes += (double)size;
            close(fd);
        }
        printf("%.6f %.6f %.0f\n", now_s() - begin, waited, bytes);
        fflush(stdout);
    }
}

/* pick_pieces - draws distinct pieces of a file; returns how many. */
static int pick_pieces(int fd, unsigned percent, off_t piece)
{
    int count = 0;
    off_t end = size_of(fd) - SHIFT - piece;
    for (off_t at = SHIFT; at <= end && count < PICKS_MAX; at += piece)
        if (draw(100) < percent)
            picks[count++] = (struct pick){fd, at};
    return count;
}

static void shuffle(int count)
{
    for (int i = count; i > 1; i--) {
        int other = (int)draw((uint64_t)i);
        struct pick kept = picks[i - 1];
        picks[i - 1] = picks[other];
        picks[other] = kept;
    }
}

static void sparse(int epochs, unsigned percent, size_t piece)
{
    int fd = open_file(files[0]);
    int count = pick_pieces(fd, percent, (off_t)piece);
    for (int epoch = 0; epoch < epochs; epoch++) {
        shuffle(count);
        double begin = now_s();
        for (int i = 0; i < count; i++)
            read_at(picks[i].fd, picks[i].at, piece);
        printf("%.6f 0 %.0f\n", now_s() - begin, (double)count * (double)piece);
        fflush(stdout);
    }
    close(fd);
}

static void first(unsigned pause_ms)
{
    int busy_fd = open_file(files[0]);
    off_t at = 0;
    for (int i = 1; i < file_count; i++) {
        usleep(pause_ms * 1000);
        for (int j = 0; j < BEFORE / BLOCK; j++, at += BLOCK)
            read_at(busy_fd, at, BLOCK);
        double begin = now_s();
        int fd = open_file(files[i]);
        read_at(fd, 0, BLOCK);
        printf("%.6f\n", now_s() - begin);
        close(fd);
    }
    close(busy_fd);
}

static void calls(int rounds, size_t n)
{
    int fd = open_file(files[0]), count = CALLS_BYTES / (int)n;
    if (count > CALLS_MAX)
        count = CALLS_MAX;
    for (off_t at = 0; at < EXTENT; at += BLOCK)
        read_at(fd, at, BLOCK);
    for (int round = 0; round < rounds; round++) {
        double begin = now_s();
        for (int i = 0; i < count; i++)
            if (pread(fd, buffer, n, (off_t)(draw(EXTENT / n) * n)) != (ssize_t)n)
                fail("pread");
        printf("%.2f\n", (now_s() - begin) * 1e9 / count);
    }
}

int main(int argc, char **argv)
{
    int numbers = argc > 1 && argv[1][0] == 'f' ? 1 : 2;
    numbers += argc > 1 && argv[1][0] == 's';
    if (argc < 3 + numbers)
        return 2;
    files = argv + 2 + numbers;
    file_count = argc - 2 - numbers;
    int one = atoi(argv[2]), other = atoi(argv[3]);
    if (argv[1][0] == 'o')
        order(one, (unsigned)other);
    else if (argv[1][0] == 's')
        sparse(one, (unsigned)other, (size_t)atol(argv[4]));
    else if (argv[1][0] == 'f')
        first((unsigned)one);
    else
        calls(one, (size_t)other);
    return 0;
}
