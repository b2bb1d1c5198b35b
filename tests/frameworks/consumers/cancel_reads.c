/* cancel_reads.c - a thread reads the same bytes of a file until it is cancelled. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void *read_on(void *path)
{
    char bytes[4096];
    int fd = open(path, O_RDONLY);
    while (pread(fd, bytes, sizeof(bytes), 0) == sizeof(bytes)) {
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const struct timespec soon = {.tv_nsec = 200000000};
    struct timespec until;
    void *result = NULL;
    pthread_t thread;
    if (argc != 2 || pthread_create(&thread, NULL, read_on, argv[1]))
        return 2;
    nanosleep(&soon, NULL);
    pthread_cancel(thread);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    if (pthread_timedjoin_np(thread, &result, &until))
        return 1;
    puts(result == PTHREAD_CANCELED ? "cancelled" : "ended");
    return 0;
}
