/* joining.c - a library whose constructor waits for a thread that uses the file system. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* use - calls that the program has hardly made before. */
static void *use(void *unused)
{
    struct stat64 st;
    const char *nowhere = "/nowhere/at/all";
    int fd = open64("/dev/null", O_RDONLY);
    if (fd < 0 || fstat64(fd, &st) < 0)
        return unused;
    close(fd);
    FILE *stream = fopen64("/dev/null", "r");
    if (stream)
        fclose(stream);
    if (creat64(nowhere, 0600) >= 0 || mkfifoat(AT_FDCWD, nowhere, 0600) == 0 ||
        lremovexattr(nowhere, "user.none") == 0 || euidaccess(nowhere, R_OK) == 0)
        return unused;
    puts("used");
    return unused;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, NULL) == 0)
        pthread_join(thread, NULL);
    fflush(stdout);
}
