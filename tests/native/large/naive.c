/* naive.c - reads as a careless library would make them: a fault for tests to find.
 *
 * Preloaded. A read gets the offset, reads there, and sets the offset: two that share
 * it get the same bytes. A pread uses the file of a number's first use, although the
 * number may since have been closed and belong to another file.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NUMBERS = 64, PAUSE_US = 100 };

static int firsts[NUMBERS]; /* a second number of each first file */

ssize_t read(int fd, void *out, size_t n)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0)
        return syscall(SYS_read, fd, out, n);
    usleep(PAUSE_US); /* also on few processors, other threads run in between */
    ssize_t count = syscall(SYS_pread64, fd, out, n, at);
    if (count > 0)
        lseek(fd, at + count, SEEK_SET);
    return count;
}

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    if (fd >= 3 && fd < NUMBERS && !firsts[fd])
        firsts[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 2 * NUMBERS);
    int from = fd >= 3 && fd < NUMBERS && firsts[fd] > 0 ? firsts[fd] : fd;
    return syscall(SYS_pread64, from, out, n, at);
}
