/* soak.c - threads open, read, stat and fork for some seconds; no wrong byte, no leaked
 * descriptor.
 *
 *   soak THREADS SECONDS DIR    DIR holds files 000 001 ...; each repeats its own name
 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *dir;
static time_t deadline;
static _Atomic unsigned long opens, forks;
static unsigned files;

static void read_one(unsigned *seed)
{
    char path[4096], name[16], text[4];
    struct stat st;
    snprintf(name, sizeof(name), "%03u", rand_r(seed) % files);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        err(1, "%s", path);
    if (fstat(fd, &st) < 0 || stat(path, &st) < 0)
        err(1, "stat %s", path);
    off_t at = (off_t)(rand_r(seed) % (unsigned)(st.st_size / 4)) * 4;
    if (pread(fd, text, 4, at) != 4 || memcmp(text, name, 3) != 0)
        errx(1, "wrong bytes in %s at %lld", path, (long long)at);
    close(fd);
    atomic_fetch_add(&opens, 1);
}

static void fork_one(unsigned *seed)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 20; i++)
            read_one(seed);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        errx(1, "child failed: %d", status);
    atomic_fetch_add(&forks, 1);
}

static void *loop(void *number)
{
    unsigned seed = (unsigned)(size_t)number;
    while (time(NULL) < deadline) {
        for (int i = 0; i < 100; i++)
            read_one(&seed);
        fork_one(&seed);
    }
    return NULL;
}

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static unsigned count_files(void)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    if (!d)
        err(1, "%s", dir);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    static pthread_t threads[256];
    if (argc != 4)
        return 2;
    int n = atoi(argv[1]);
    deadline = time(NULL) + atoi(argv[2]);
    dir = argv[3];
    files = count_files();
    unsigned before = descriptors();
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, loop, (void *)(size_t)i))
            errx(1, "pthread_create");
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (descriptors() != before)
        errx(1, "%u descriptors became %u", before, descriptors());
    printf("%lu %lu\n", opens, forks);
    return 0;
}
