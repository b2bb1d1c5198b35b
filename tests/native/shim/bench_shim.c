/* bench_shim.c - cost of the Shim for open, stat, opens elsewhere: ratios in one run.
 *
 *   bench_shim LIST OUTSIDE     under the Shim; LIST names files below a root, by line
 *
 * The unshimmed functions are taken from libc by its own handle, and rounds alternate.
 */
#include <dlfcn.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES_MAX = 200000, ROUNDS = 7, HOT = 20000 };

typedef int open_fn(const char *, int, ...);
typedef int stat_fn(const char *, struct stat *);

static char *files[FILES_MAX];
static size_t file_count;
static open_fn *native_open;
static stat_fn *native_stat;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double time_open(open_fn *fn, size_t first, size_t distinct, size_t n)
{
    double begun = now_us();
    for (size_t i = 0; i < n; i++) {
        int fd = fn(files[(first + i % distinct) % file_count], O_RDONLY);
        if (fd < 0)
            err(1, "open");
        close(fd);
    }
    return (now_us() - begun) / (double)n;
}

static double time_outside(open_fn *fn, const char *path, size_t n)
{
    double begun = now_us();
    for (size_t i = 0; i < n; i++)
        close(fn(path, O_RDONLY));
    return (now_us() - begun) / (double)n;
}

static double time_stat(stat_fn *fn, size_t first, size_t distinct, size_t n)
{
    struct stat st;
    double begun = now_us();
    for (size_t i = 0; i < n; i++)
        if (fn(files[(first + i % distinct) % file_count], &st) < 0)
            err(1, "stat");
    return (now_us() - begun) / (double)n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *plain, double *shim)
{
    qsort(plain, ROUNDS, sizeof(*plain), ascending);
    qsort(shim, ROUNDS, sizeof(*shim), ascending);
    printf("%s\t%.3f\t%.3f\t%.3f\n", what, plain[ROUNDS / 2], shim[ROUNDS / 2],
           shim[ROUNDS / 2] / plain[ROUNDS / 2]);
}

static void read_list(const char *path)
{
    char line[4096];
    FILE *in = fopen(path, "r");
    if (!in)
        err(1, "%s", path);
    while (file_count < FILES_MAX && fgets(line, sizeof(line), in)) {
        line[strcspn(line, "\n")] = 0;
        files[file_count++] = strdup(line);
    }
    fclose(in);
    for (size_t i = file_count; i > 1; i--) {
        size_t k = (size_t)random() % i;
        char *kept = files[i - 1];
        files[i - 1] = files[k];
        files[k] = kept;
    }
}

int main(int argc, char **argv)
{
    double plain[5][ROUNDS], shim[5][ROUNDS];
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    if (argc != 3 || !libc)
        errx(2, "usage: bench_shim LIST OUTSIDE");
    native_open = (open_fn *)dlsym(libc, "open");
    native_stat = (stat_fn *)dlsym(libc, "stat");
    read_list(argv[1]);
    size_t part = file_count / ROUNDS;
    for (int r = 0; r < ROUNDS; r++) {
        size_t at = (size_t)r * part;
        plain[0][r] = time_open(native_open, at, 64, HOT);
        shim[0][r] = time_open(open, at, 64, HOT);
        plain[1][r] = time_open(native_open, at, part, part);
        shim[1][r] = time_open(open, at, part, part);
        plain[2][r] = time_outside(native_open, argv[2], HOT);
        shim[2][r] = time_outside(open, argv[2], HOT);
        plain[3][r] = time_stat(native_stat, at, 64, HOT);
        shim[3][r] = time_stat(stat, at, 64, HOT);
        plain[4][r] = time_stat(native_stat, at, part, part);
        shim[4][r] = time_stat(stat, at, part, part);
    }
    printf("what\tnative us\tshim us\tratio\n");
    report("open+close hot", plain[0], shim[0]);
    report("open+close cold probe", plain[1], shim[1]);
    report("open+close outside", plain[2], shim[2]);
    report("stat hot", plain[3], shim[3]);
    report("stat cold probe", plain[4], shim[4]);
    return 0;
}
