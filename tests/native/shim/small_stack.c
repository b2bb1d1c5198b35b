/* small_stack.c - starts programs from a thread with the smallest possible stack. */
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const argv[] = {(char *)"true", NULL};
static char *const envp[] = {NULL};

static void await(const char *what, pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    printf("%s %d\n", what, status);
}

static void *start(void *unused)
{
    pid_t pid = fork();
    if (pid == 0) {
        execve("/bin/true", argv, envp);
        _exit(9);
    }
    await("exec", pid);
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp) == 0)
        await("spawn", pid);
    return unused;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) != 0 ||
        pthread_create(&thread, &attributes, start, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
