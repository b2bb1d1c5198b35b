/* adopt.c - opening a Replica that an earlier job has left, to check it. */
#include <errno.h>
#include <fcntl.h>

#include "dataplane/transfer.h"

/* adopt_open - opens it as the source; -ENOENT: there is none; -EBADMSG: it is not a
 * file that this user's agent has published. */
int adopt_open(struct transfer *t, uid_t euid)
{
    struct stat st;
    t->step = MONARCH_STEP_OPEN;
    int fd = file_openat(t->tier, t->name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd == -ELOOP ? -EBADMSG : fd;
    t->source = fd;
    if (fstat(fd, &st))
        return -errno;
    t->step = MONARCH_STEP_VERIFY;
    if (!S_ISREG(st.st_mode) || (st.st_mode & 07777) != 0400 || st.st_uid != euid ||
        (uint64_t)st.st_size != t->size)
        return -EBADMSG;
    t->replica_ino = st.st_ino;
    return st.st_dev == t->tier_dev ? 0 : -EXDEV;
}
