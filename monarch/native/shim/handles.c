/* handles.c - descriptors that no path leads to: whoever may write by them is seen. */
#include <errno.h>

#include "next.h"
#include "trace.h"

/* received - marks what a new descriptor can change; nothing is remembered of it. */
static int received(int fd)
{
    const struct board *b = fd >= 0 ? board_marking() : NULL;
    if (b)
        trace_if_writable(b, fd);
    return fd;
}

int open_by_handle_at(int mount_fd, struct file_handle *handle, int flags)
{
    return received(NEXT(open_by_handle_at)(mount_fd, handle, flags));
}

int pidfd_getfd(int pidfd, int target, unsigned flags)
{
    return received(NEXT(pidfd_getfd)(pidfd, target, flags));
}

int shm_open(const char *name, int flags, mode_t mode)
{
    return received(NEXT(shm_open)(name, flags, mode));
}
