/* led_back.c - truncates a file by a link that is retargeted when the call begins, and
 * restored before it returns: LINK, the target meanwhile, and the first target. */
#include <stdbool.h>
#include <stdio.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool lead(const char *link, const char *target)
{
    char fresh[4096];
    snprintf(fresh, sizeof(fresh), "%s.new", link);
    return symlink(target, fresh) == 0 && rename(fresh, link) == 0;
}

static int cut(const char *link)
{
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
        return 2;
    raise(SIGSTOP);
    return truncate(link, 5) != 0;
}

/* stopped - lets the child go on to its next stop at a system call; false: it has ended. */
static bool stopped(pid_t pid, int *status)
{
    return ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0 && waitpid(pid, status, 0) == pid &&
           WIFSTOPPED(*status);
}

int main(int argc, char **argv)
{
    pid_t pid = argc == 4 ? fork() : -1;
    if (pid == 0)
        _exit(cut(argv[1]));
    int status, turns = 0;
    bool within = false, led = true;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD) != 0)
        return 2;
    while (led && stopped(pid, &status)) {
        struct __ptrace_syscall_info call = {0};
        ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(call), &call);
        bool begins = call.op == PTRACE_SYSCALL_INFO_ENTRY &&
                      call.entry.nr == SYS_truncate;
        if (!begins && !within)
            continue;
        led = lead(argv[1], argv[begins ? 2 : 3]);
        within = begins;
        turns++;
    }
    return led && turns == 2 && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
