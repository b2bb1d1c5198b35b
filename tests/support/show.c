/* show.c - a program that prints everything it has inherited, one fact per line. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

extern char **environ;

static void show_signals(void)
{
    sigset_t mask;

    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int signo = 1; signo < 65; signo++) {
        struct sigaction action;

        if (sigaction(signo, NULL, &action) == 0)
            printf("signal %d ignored %d blocked %d\n", signo,
                   action.sa_handler == SIG_IGN, sigismember(&mask, signo));
    }
}

static void show_descriptors(void)
{
    for (int fd = 0; fd < 256; fd++) {
        struct stat st;

        if (fstat(fd, &st) == 0)
            printf("fd %d dev %lu ino %lu flags %o cloexec %d\n", fd, st.st_dev,
                   st.st_ino, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    }
}

static void show_limits(void)
{
    for (int resource = 0; resource < RLIMIT_NLIMITS; resource++) {
        struct rlimit limit;

        if (getrlimit((__rlimit_resource_t)resource, &limit) == 0)
            printf("limit %d %lu %lu\n", resource, limit.rlim_cur, limit.rlim_max);
    }
}

int main(int argc, char **argv)
{
    char cwd[4096];
    int death = 0;
    mode_t mask = umask(0);

    printf("cwd %s\numask %o\n", getcwd(cwd, sizeof(cwd)), mask);
    prctl(PR_GET_PDEATHSIG, &death);
    printf("group %d session %d foreground %d\n", getpgrp(), getsid(0), tcgetpgrp(0));
    printf("nice %d death %d dumpable %d\n", getpriority(PRIO_PROCESS, 0), death,
           prctl(PR_GET_DUMPABLE));
    show_signals();
    show_descriptors();
    show_limits();
    for (int i = 0; i < argc; i++)
        printf("arg <%s>\n", argv[i]);
    for (char **variable = environ; *variable; variable++)
        printf("env <%s>\n", *variable);
    return 0;
}
