/* swap.c - threads read by a number that another one assigns to two files in turn.
 *
 *     swap SECONDS FILE FILE
 *
 * names files as play.c makes them. All bytes of a pread must be from one of the two
 * files, no matter which; exit status 1, with a line for each fault.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "words.h"

enum { READERS = 3, NUMBER = 40, PLACES = 8 << 20, MOST = 64 << 10, SHOWN = 8 };

static int fds[2];
static unsigned numbers[2];
static atomic_bool stop;
static atomic_ulong reads, faults;

static int is_one_of_them(const char *bytes, ssize_t count, off_t at)
{
    for (int i = 0; i < 2; i++) {
        struct word of = {numbers[i], 0, 0};
        if (wrong_word(bytes, (size_t)count, at, of) < 0)
            return 1;
    }
    return 0;
}

static void *run_reader(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed;
    char *room = malloc(MOST);
    while (!stop) {
        random = mix(random + 0x9e3779b97f4a7c15u);
        off_t at = (off_t)(random % PLACES);
        size_t n = 1 + (random >> 40) % MOST;
        ssize_t count = pread(NUMBER, room, n, at);
        reads++;
        if (count != (ssize_t)n || !is_one_of_them(room, count, at))
            if (faults++ < SHOWN)
                fprintf(stderr, "%zd of %zu bytes at %lld, error %d\n", count, n,
                        (long long)at, errno);
    }
    free(room);
    return NULL;
}

/* swap_until - by calls that a library sees and by calls that it does not see. */
static void swap_until(time_t end)
{
    const struct timespec pause = {.tv_nsec = 50000};
    for (unsigned i = 0; time(NULL) < end; i++) {
        if (i / 2 % 2)
            dup2(fds[i % 2], NUMBER);
        else
            syscall(SYS_dup3, fds[i % 2], NUMBER, 0);
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[READERS];
    if (argc != 4)
        return 2;
    for (int i = 0; i < 2; i++) {
        const char *path = argv[2 + i];
        numbers[i] = (unsigned)strtoul(path + strlen(path) - 2, NULL, 10) + 1;
        fds[i] = open(path, O_RDONLY);
    }
    if (fds[0] < 0 || fds[1] < 0 || dup2(fds[0], NUMBER) < 0)
        return 1;
    for (uintptr_t i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, run_reader, (void *)(i + 1));
    swap_until(time(NULL) + 1 + atoi(argv[1]));
    stop = 1;
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    printf("%lu reads\n", reads);
    return faults != 0;
}
