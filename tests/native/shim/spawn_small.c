/* spawn_small.c - a thread with a small stack starts a program. */
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *start(void *unused)
{
    char *const words[] = {"true", NULL};
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) == 0 &&
        waitpid(child, NULL, 0) == child)
        puts("ok");
    return unused;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, 65536) ||
        pthread_create(&thread, &attr, start, NULL))
        return 1;
    return pthread_join(thread, NULL);
}
