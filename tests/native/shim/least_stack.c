/* least_stack.c - calls a function in a signal handler on an alternate stack of a size.
 *
 *   least_stack CALL BYTES PATH    exit status 0, or a fault where the stack is too small
 */
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM_BYTES = 1 << 16, GUARD_BYTES = 1 << 16 };

static const char *call, *path;

static void act(int unused)
{
    struct stat st;
    (void)unused;
    if (strcmp(call, "open") == 0)
        close(open(path, O_RDONLY));
    else if (strcmp(call, "relative") == 0)
        close(open("a/../two.bin", O_RDONLY));
    else if (strcmp(call, "write") == 0)
        close(open(path, O_WRONLY));
    else if (strcmp(call, "stat") == 0)
        stat("a/../two.bin", &st);
    else if (strcmp(call, "unlink") == 0)
        unlink("a/../gone.bin");
    else if (strcmp(call, "rename") == 0)
        rename(path, path);
    else if (strcmp(call, "chmod") == 0)
        chmod(path, 0600);
    else
        _exit(3);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    call = argv[1];
    path = argv[3];
    size_t bytes = strtoul(argv[2], NULL, 10);
    char *memory = mmap(NULL, GUARD_BYTES + ROOM_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* The end of the stack that counts lies on the guard, whatever its size. */
    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0)
        err(1, "stack");
    const stack_t stack = {.ss_sp = memory + GUARD_BYTES, .ss_size = bytes};
    struct sigaction action = {.sa_handler = act, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, NULL) != 0)
        return 4;
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return 0;
}
