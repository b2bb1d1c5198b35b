/* opens.c - times one kind of call over a list of paths, in a seeded random order.
 *
 *   opens LIST open|read|stat|write|truncate|each ROUNDS [wait]
 *
 * Prints one line per round: nanoseconds per call. `each` times every open by itself and
 * prints one line per path instead. LIST holds one path per line. With `wait` it says when
 * it is ready, and begins when its standard input ends. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 17 };

static char buffer[BUFFER_BYTES];
static char **paths;
static size_t count;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void load(const char *list)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(list, "r");
    if (!file)
        fail(list);
    for (ssize_t n; (n = getline(&line, &room, file)) > 0; count++) {
        line[n - 1] = 0;
        if (count % 4096 == 0 &&
            !(paths = realloc(paths, (count + 4096) * sizeof(*paths))))
            fail("realloc");
        paths[count] = strdup(line);
    }
    free(line);
    fclose(file);
}

static void shuffle(void)
{
    uint64_t random = 88172645463325252ull;
    for (size_t i = count; i > 1; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t other = random % i;
        char *kept = paths[i - 1];
        paths[i - 1] = paths[other];
        paths[other] = kept;
    }
}

static void call(const char *path, const char *kind)
{
    struct stat st;
    if (kind[0] == 's') {
        if (stat(path, &st))
            fail(path);
        return;
    }
    int fd = open(path, kind[0] == 'w'   ? O_WRONLY
                        : kind[0] == 't' ? O_WRONLY | O_TRUNC
                                         : O_RDONLY);
    if (fd < 0)
        fail(path);
    while (kind[0] == 'r' && read(fd, buffer, sizeof(buffer)) > 0) {
    }
    close(fd);
}

static void wait_for_start(void)
{
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    load(argv[1]);
    shuffle();
    if (argc > 4)
        wait_for_start();
    if (argv[2][0] == 'e') {
        for (size_t i = 0; i < count; i++) {
            uint64_t begin = now_ns();
            call(paths[i], "open");
            printf("%lu\n", (unsigned long)(now_ns() - begin));
        }
        return 0;
    }
    for (int round = 0; round < atoi(argv[3]); round++) {
        uint64_t begin = now_ns();
        for (size_t i = 0; i < count; i++)
            call(paths[i], argv[2]);
        printf("%.1f\n", (double)(now_ns() - begin) / (double)count);
    }
    return 0;
}
