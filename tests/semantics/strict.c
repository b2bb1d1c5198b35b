/* strict.c - works with the files of the working directory where a filter ends it at each
 * system call but those that it makes itself, and those of a list:
 *
 *     strict COLD MADE NAME...     COLD was not opened yet, MADE does not exist yet
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    int number;
} known[] = {
    {"statx", SYS_statx},
    {"getcwd", SYS_getcwd},
    {"getpid", SYS_getpid},
    {"geteuid", SYS_geteuid},
    {"futex", SYS_futex},
    {"clock_gettime", SYS_clock_gettime},
#ifdef SYS_poll
    {"poll", SYS_poll},
#else
    {"poll", SYS_ppoll},
#endif
    {"fcntl", SYS_fcntl},
    {"ftruncate", SYS_ftruncate},
    {"readlinkat", SYS_readlinkat},
    {"getuid", SYS_getuid},
    {"getegid", SYS_getegid},
    {"capget", SYS_capget},
    {"getgroups", SYS_getgroups},
};

static const int own[] = {
#ifdef SYS_open
    SYS_open,       SYS_access,          SYS_stat,
    SYS_fork,
#endif
    SYS_openat,     SYS_close,           SYS_read,
    SYS_fstat,      SYS_newfstatat,      SYS_faccessat,
    SYS_fchmod,     SYS_chmod,           SYS_fchmodat,
    SYS_clone,      SYS_set_robust_list, SYS_wait4,
    SYS_exit_group,
};

enum { KNOWN = sizeof(known) / sizeof(known[0]), OWN = sizeof(own) / sizeof(own[0]) };

static struct sock_filter code[4 + 2 * (KNOWN + OWN)];
static unsigned short length;

static void add(unsigned short op, unsigned k, unsigned char otherwise)
{
    code[length++] = (struct sock_filter)BPF_JUMP(op, k, 0, otherwise);
}

static void allow(int number)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0);
}

static bool filter(char **names, int count)
{
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0);
    for (int i = 0; i < OWN; i++)
        allow(own[i]);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < KNOWN; j++)
            if (strcmp(names[i], known[j].name) == 0)
                allow(known[j].number);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0);
    struct sock_fprog program = {.len = length, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool closed(int fd)
{
    return fd >= 0 && close(fd) == 0;
}

static bool reads(int directory)
{
    struct stat st;
    int fd = open("spare.bin", O_RDONLY | O_NOATIME);
    return fstat(fd, &st) == 0 && st.st_size == 10000 && closed(fd) &&
           closed(openat(directory, "sub/b.bin", O_RDONLY)) &&
           stat("spare.bin", &st) == 0 && access("spare.bin", R_OK) == 0;
}

static bool changes(int directory, const char *cold, const char *made)
{
    int fd = open(cold, O_RDONLY);
    return fchmod(fd, 0600) == 0 && closed(fd) &&
           closed(openat(directory, cold, O_WRONLY | O_TRUNC)) &&
           closed(openat(directory, made, O_WRONLY | O_CREAT | O_TRUNC, 0644));
}

static bool forks(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(!closed(open("sub/b.bin", O_RDONLY)));
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int main(int argc, char **argv)
{
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    if (argc < 3 || directory < 0 || !filter(argv + 3, argc - 3))
        _exit(2);
    _exit(!(reads(directory) && changes(directory, argv[1], argv[2]) && forks()));
}
