/* object.h - the target of a path or a descriptor, as the kernel reports it. */
#ifndef MONARCH_OBJECT_H
#define MONARCH_OBJECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

enum birth {
    BIRTH_UNTOLD, /* the file system does not keep it */
    BIRTH_BEFORE,
    BIRTH_AFTER,
};

bool object_at(int dirfd, const char *path, bool follow, struct stat *out);
bool object_of(int fd, struct stat *out);
bool object_new(int fd);
enum birth object_birth(int fd, const char *path, int64_t ns);
int object_hold(int dirfd, const char *path, int flags);
bool object_by_descriptor(int dirfd, const char *path);
bool object_in_proc(const char *path);

static inline bool object_same(const struct stat *a, const struct stat *seg)
{
    return a->st_ino == seg->st_ino && a->st_dev == seg->st_dev;
}

#endif
