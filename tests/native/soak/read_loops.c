/* read_loops.c - many threads open, check and close certified files, and fork, for a time.
 *
 *     read_loops SECONDS THREADS FILES ROOT
 *
 * ROOT holds files 0000, 0001, ...; every 8-byte word of file N at word W is N << 32 | W.
 * Exit status 0: no wrong byte, no leaked descriptor; 1 otherwise, with a line on stderr.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 16,
    FORK_EVERY = 16, /* loops of a thread */
    SPAWN_EVERY = 64,
    CHILD_OPENS = 3,
    THREADS_MAX = 256,
    PATH_BYTES = 4096,
};

static const char *root;
static unsigned file_count;
static int root_fd;
static atomic_bool stop;
static atomic_ulong opens, forks, wrong;
extern char **environ;

/* complain - notes a failure; the first few are printed, safely after fork. */
static void complain(const char *what, unsigned file)
{
    char line[160];
    int error = errno;

    if (atomic_fetch_add(&wrong, 1) < 8) {
        int length = snprintf(line, sizeof(line), "pid %d: %s, file %u (%s)\n",
                              (int)getpid(), what, file, strerror(error));
        if (write(2, line, (size_t)length) < 0)
            abort();
    }
}

/* check_words - true if a piece of a file at an offset is right. */
static int check_words(const void *piece, size_t length, off_t at, unsigned file)
{
    const uint64_t *words = piece;

    for (size_t i = 0; i < length / 8; i++)
        if (words[i] != ((uint64_t)file << 32 | ((uint64_t)at / 8 + i)))
            return 0;
    return 1;
}

/* check_reads - reads a whole descriptor with read or pread and checks it. */
static int check_reads(int fd, off_t size, unsigned file, int positional)
{
    uint64_t buffer[BUFFER_BYTES / 8];
    off_t at = 0;

    while (at < size) {
        ssize_t count = positional ? pread(fd, buffer, sizeof(buffer), at)
                                   : read(fd, buffer, sizeof(buffer));
        if (count <= 0 || !check_words(buffer, (size_t)count, at, file))
            return 0;
        at += count;
    }
    return at == size;
}

/* check_map - maps a whole descriptor and checks it. */
static int check_map(int fd, off_t size, unsigned file)
{
    void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    int right = map != MAP_FAILED && check_words(map, (size_t)size, 0, file);

    if (map != MAP_FAILED)
        munmap(map, (size_t)size);
    return right;
}

/* check_descriptor - checks the file behind a descriptor in one of three ways. */
static int check_descriptor(int fd, unsigned file, unsigned way)
{
    struct stat by_name, by_fd;
    char name[16];

    snprintf(name, sizeof(name), "%04u", file);
    if (fstat(fd, &by_fd) < 0 || fstatat(root_fd, name, &by_name, 0) < 0)
        return 0;
    if (by_fd.st_ino != by_name.st_ino || by_fd.st_size != by_name.st_size)
        return 0;
    return way == 2 ? check_map(fd, by_fd.st_size, file)
                    : check_reads(fd, by_fd.st_size, file, way == 1);
}

/* read_file - opens a file in one of four ways, checks and closes it. */
static void read_file(unsigned file, unsigned choice)
{
    char path[PATH_BYTES];
    FILE *stream = NULL;
    int fd, right;

    snprintf(path, sizeof(path), "%s/%04u", root, file);
    if (choice % 4 == 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    else if (choice % 4 == 1)
        fd = openat(root_fd, path + strlen(root) + 1, O_RDONLY);
    else if (choice % 4 == 2)
        fd = (stream = fopen(path, "re")) ? fileno(stream) : -1;
    else
        fd = open(path + strlen(root) + 1, O_RDONLY); /* the root is our cwd */
    if (fd < 0) {
        complain("cannot open", file);
        return;
    }
    right = check_descriptor(fd, file, choice / 4 % 3);
    if (!right)
        complain("wrong bytes", file);
    if (stream ? fclose(stream) : close(fd))
        complain("cannot close", file);
    atomic_fetch_add(&opens, 1);
}

/* await_child - waits for a child, which must end with status 0. */
static void await_child(pid_t pid)
{
    int status;

    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        complain("child failed", 0);
    atomic_fetch_add(&forks, 1);
}

/* fork_reader - forks a child that reads files without stdio or malloc. */
static void fork_reader(unsigned seed)
{
    pid_t pid = fork();

    if (pid == 0) {
        atomic_store(&wrong, 0);
        for (unsigned i = 0; i < CHILD_OPENS; i++)
            read_file((seed + i * 7) % file_count, i % 2 + 4 * (i % 3));
        _exit(atomic_load(&wrong) != 0);
    }
    await_child(pid);
}

/* spawn_true - starts a short program by posix_spawn. */
static void spawn_true(void)
{
    char name[] = "true";
    char *const words[] = {name, NULL};
    pid_t pid = -1;

    if (posix_spawnp(&pid, name, NULL, NULL, words, environ) != 0)
        pid = -1;
    await_child(pid);
}

static void *loop(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument * 2654435761u + 1;

    for (unsigned round = 1; !atomic_load(&stop); round++) {
        void *block = malloc(64 + seed % 5000);

        seed = seed * 1664525u + 1013904223u;
        read_file((seed >> 8) % file_count, seed >> 3);
        if (round % FORK_EVERY == 0)
            fork_reader(seed >> 8);
        if (round % SPAWN_EVERY == 0)
            spawn_true();
        free(block);
    }
    return NULL;
}

/* count_descriptors - the number of open descriptors of this process. */
static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    unsigned seconds, count;
    int before, after;

    if (argc != 5 || chdir(argv[4]) < 0)
        return 2;
    seconds = (unsigned)atoi(argv[1]);
    count = (unsigned)atoi(argv[2]);
    file_count = (unsigned)atoi(argv[3]);
    root = argv[4];
    root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0 || count > THREADS_MAX || file_count == 0)
        return 2;
    before = count_descriptors();
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, loop, (void *)(uintptr_t)i))
            return 2;
    sleep(seconds);
    atomic_store(&stop, 1);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    after = count_descriptors();
    printf("opens %lu forks %lu wrong %lu descriptors %d %d\n", atomic_load(&opens),
           atomic_load(&forks), atomic_load(&wrong), before, after);
    return atomic_load(&wrong) || before != after;
}
