/* lead_elsewhere.c - a library behind the Shim that retargets the link "../way" to
 * another directory between the Shim's check and the call. */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int unlinkat(int dirfd, const char *path, int flags);
int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);

static void lead(void)
{
    syscall(SYS_symlinkat, "dataset/other", AT_FDCWD, "../way.new");
    syscall(SYS_renameat2, AT_FDCWD, "../way.new", AT_FDCWD, "../way", 0);
}

int unlinkat(int dirfd, const char *path, int flags)
{
    lead();
    return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    lead();
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    lead();
    return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}
