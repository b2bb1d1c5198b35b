/* getenv_beside.c - a thread reads the environment, another changes it, while the first
 * one starts shells: none of them may lose its settings, or crash. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int stop;

static void *sleeper(void *unused)
{
    return system("sleep 0.4") ? unused : NULL;
}

static void *reader(void *unused)
{
    while (!stop)
        if (getenv("NOT_THERE"))
            return unused;
    return NULL;
}

int main(void)
{
    pthread_t thread;
    setenv("CHANGED", "old", 1);
    setenv("REMOVED", "old", 1);
    unsetenv("LD_PRELOAD");
    pthread_create(&thread, NULL, sleeper, NULL);
    usleep(150000);
    setenv("CHANGED", "new", 1);
    unsetenv("REMOVED");
    pthread_join(thread, NULL);
    printf("%s %s\n", getenv("CHANGED"), getenv("REMOVED") ? "there" : "gone");
    unsetenv("LD_PRELOAD");
    pthread_create(&thread, NULL, reader, NULL);
    for (int i = 0; i < 100; i++)
        pclose(popen(":", "r"));
    stop = 1;
    pthread_join(thread, NULL);
    return 0;
}
