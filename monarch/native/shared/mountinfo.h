/* mountinfo.h - mount points below a directory, in the namespace of this process. */
#ifndef MONARCH_MOUNTINFO_H
#define MONARCH_MOUNTINFO_H

#include <stdbool.h>

#include "index.h"

enum { MOUNTINFO_CHUNK_BYTES = 512 };

struct mountinfo { /* buffers of a reader, which are too large for small stacks */
    int fd;
    bool failed; /* the file could not be read completely */
    size_t at, filled;
    size_t length; /* of the mount point, which is truncated if it is too long */
    char chunk[MOUNTINFO_CHUNK_BYTES];
    char point[PATH_BYTES_MAX];
};

struct statfs;

enum { FS_IN_MEMORY = 1, FS_REMOTE = 2 }; /* results of mountinfo_traits() */

int mountinfo_traits(const struct statfs *fs);
bool mountinfo_unstable(const struct statfs *fs);
uint32_t mountinfo_id(int dirfd, const char *path, int flags);
bool mountinfo_covers(struct mountinfo *m, const struct index *ix,
                      const char *directory, size_t n);

#endif
