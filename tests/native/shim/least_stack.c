/* least_stack.c - a thread with the least stack uses most of it. */
#include <alloca.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

enum { USED = 9000 };

static void *use(void *unused)
{
    volatile char *room = alloca(USED);
    for (int i = USED; i-- > 0;)
        room[i] = 1;
    return unused;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, 16384) ||
        pthread_create(&thread, &attr, use, NULL) || pthread_join(thread, NULL))
        return 1;
    puts("ok");
    return 0;
}
