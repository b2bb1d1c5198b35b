/* cancel.c - prints the milliseconds until the end of a thread that is cancelled while
 * its open waits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void *waits(void *path)
{
    open(path, O_RDONLY);
    return NULL;
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    struct timespec soon = {.tv_nsec = 50000000};
    void *result = NULL;
    pthread_t thread;
    if (argc != 2 || pthread_create(&thread, NULL, waits, argv[1]) != 0)
        return 2;
    nanosleep(&soon, NULL);
    long begun = milliseconds();
    if (pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0)
        return 2;
    printf("%ld\n", milliseconds() - begun);
    return result != PTHREAD_CANCELED;
}
