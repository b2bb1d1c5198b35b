/* behave.c - situations in which a preloaded library can fail; "ok" or the failure.
 *
 *   behave SITUATION PATH    PATH is a File whose first bytes are "two.b"
 */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const char *path;
static char early[8];

#define MUST(condition)                                             \
    do {                                                            \
        if (!(condition))                                           \
            errx(1, "line %d: not true: %s", __LINE__, #condition); \
    } while (0)

/* reads_right - the path reads as it should; returns whether a Replica was read. */
static int replica_answers(void)
{
    char text[6] = "", proc[64], link[4096] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0 && pread(fd, text, 5, 0) == 5 && strcmp(text, "two.b") == 0);
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    MUST(readlink(proc, link, sizeof(link) - 1) > 0);
    close(fd);
    return strcmp(link, path) != 0;
}

/* Runs before every constructor, including libc's own. */
static void before_all(int argc, char **argv, char **envp)
{
    (void)envp;
    if (argc != 3 || strcmp(argv[1], "early") != 0)
        return;
    int fd = open(argv[2], O_RDONLY);
    if (fd >= 0 && pread(fd, early, 5, 0) == 5)
        close(fd);
}

__attribute__((section(".preinit_array"),
               used)) static void (*first)(int, char **, char **) = before_all;

static void early_open(void)
{
    MUST(strcmp(early, "two.b") == 0);
    MUST(replica_answers());
}

static void errno_kept(void)
{
    struct stat st;
    errno = 77;
    MUST(replica_answers() && errno == 77);
    MUST(stat(path, &st) == 0 && access(path, R_OK) == 0 && errno == 77);
    MUST(open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT);
}

static void errno_kept_when_lost(void)
{
    errno = 77;
    MUST(!replica_answers() && errno == 77);
}

/* A NULL path is an error of the kernel, not a crash. */
static void null_paths(void)
{
    const char *volatile none = NULL;
    struct stat st;
    MUST(open(none, O_RDONLY) == -1 && errno == EFAULT);
    MUST(open(none, O_WRONLY) == -1 && errno == EFAULT);
    MUST(stat(none, &st) == -1 && errno == EFAULT);
    MUST(unlink(none) == -1 && errno == EFAULT);
    MUST(chmod(none, 0600) == -1 && errno == EFAULT);
    MUST(access(none, F_OK) == -1 && errno == EFAULT);
}

static void close_all(void)
{
    struct stat st;
    syscall(SYS_close_range, 3, ~0u, 0);
    MUST(replica_answers());
    MUST(stat(path, &st) == 0 && st.st_size > 5);
    for (int fd = 3; fd < 64; fd++)
        MUST(fcntl(fd, F_GETFD) == -1);
}

static void *open_blocked(void *unused)
{
    replica_answers();
    return unused;
}

/* end_soon - cancels a blocked thread, and waits briefly for its end. */
static void end_soon(pthread_t thread)
{
    struct timespec t = {.tv_nsec = 200000000};
    void *result;
    nanosleep(&t, NULL);
    MUST(pthread_cancel(thread) == 0);
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 5;
    MUST(pthread_timedjoin_np(thread, &result, &t) == 0 && result == PTHREAD_CANCELED);
}

/* The open waits for a Transfer that never arrives. */
static void cancelled(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, open_blocked, NULL) == 0);
    end_soon(thread);
}

static void *open_fifo(void *fifo)
{
    open(fifo, O_RDONLY);
    return NULL;
}

/* A blocking open of a path outside stays a cancellation point. */
static void cancelled_outside(void)
{
    char fifo[4096];
    pthread_t thread;
    snprintf(fifo, sizeof(fifo), "%s.fifo", path);
    MUST(mkfifo(fifo, 0600) == 0 || errno == EEXIST);
    MUST(pthread_create(&thread, NULL, open_fifo, fifo) == 0);
    end_soon(thread);
}

static void child_of_vfork(void)
{
    int status;
    pid_t pid = vfork();
    if (pid == 0)
        _exit(open(path, O_RDONLY) >= 0 ? 0 : 1);
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    MUST(chdir("/") == 0);
}

static void child_of_fork(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(replica_answers() ? 0 : 1);
    MUST(waitpid(pid, &status, 0) == pid && status == 0 && replica_answers());
}

static void on_signal(int number)
{
    struct stat st;
    (void)number;
    MUST(stat(path, &st) == 0);
    replica_answers();
}

/* A signal handler opens while the thread waits in an open of its own. */
static void signalled(void)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    const struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    MUST(replica_answers());
}

static void small_stack(void)
{
    stack_t stack = {.ss_sp = malloc((size_t)SIGSTKSZ * 2),
                     .ss_size = (size_t)SIGSTKSZ * 2};
    const struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&stack, NULL) == 0);
    sigaction(SIGUSR1, &act, NULL);
    raise(SIGUSR1);
}

/* The descriptor limit is reached: the error is that of any open. */
static void no_descriptors(void)
{
    struct rlimit before;
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, before.rlim_max}) == 0);
    MUST(open(path, O_RDONLY) == -1 && errno == EMFILE);
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    MUST(replica_answers());
}

/* A closed and reused number must not be taken for the file it was. */
static void reused_number(void)
{
    struct stat a, b;
    int fd = open(path, O_RDONLY), other = open("/etc/passwd", O_RDONLY);
    MUST(fstat(other, &a) == 0);
    syscall(SYS_dup3, other, fd, 0);
    MUST(fstat(fd, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}

static void mapped_while_evicted(void)
{
    char link[4096] = "", proc[64];
    int fd = open(path, O_RDONLY);
    const char *at = mmap(NULL, 5, PROT_READ, MAP_SHARED, fd, 0);
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    MUST(at != MAP_FAILED && readlink(proc, link, sizeof(link) - 1) > 0);
    MUST(strcmp(link, path) != 0 && unlink(link) == 0);
    MUST(memcmp(at, "two.b", 5) == 0);
}

static void direct(void)
{
    int fd = open(path, O_RDONLY | O_DIRECT);
    MUST(fd >= 0);
    close(fd);
    MUST(open(path, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
    fd = open(path, O_PATH);
    MUST(fd >= 0 && read(fd, early, 1) == -1 && errno == EBADF);
    MUST(open(path, O_RDONLY | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
    MUST(open(path, O_RDONLY | O_CREAT, 0600) >= 0);
}

/* The library is found by DEEPBIND before the Shim: slow, right. */
static void deep(void)
{
    void *lib = dlopen(getenv("DEEP_LIBRARY"), RTLD_NOW | RTLD_DEEPBIND);
    MUST(lib != NULL);
    int (*open_deep)(const char *) = (int (*)(const char *))dlsym(lib, "open_deep");
    char text[6] = "";
    MUST(open_deep && read(open_deep(path), text, 5) == 5 &&
         strcmp(text, "two.b") == 0);
}

static const struct situation {
    const char *name;
    void (*run)(void);
} situations[] = {
    {"early", early_open},
    {"errno", errno_kept},
    {"errno-lost", errno_kept_when_lost},
    {"null", null_paths},
    {"closefrom", close_all},
    {"cancel", cancelled},
    {"cancel-outside", cancelled_outside},
    {"vfork", child_of_vfork},
    {"fork", child_of_fork},
    {"signal", signalled},
    {"small-stack", small_stack},
    {"no-descriptors", no_descriptors},
    {"reused-number", reused_number},
    {"mapped", mapped_while_evicted},
    {"direct", direct},
    {"deepbind", deep},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    path = argv[2];
    for (size_t i = 0; i < sizeof(situations) / sizeof(*situations); i++)
        if (strcmp(situations[i].name, argv[1]) == 0) {
            situations[i].run();
            puts("ok");
            return 0;
        }
    return 2;
}
