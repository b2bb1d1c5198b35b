/* identity.h - identifies redirected descriptors by (device, inode), never by a table. */
#ifndef MONARCH_IDENTITY_H
#define MONARCH_IDENTITY_H

#include <sys/stat.h>

#include "shim/names/attached.h"

struct identity {               /* the File whose Replica a descriptor leads to */
    const struct segments *seg; /* that knows it */
    const struct index *ix;
    const struct entry *entry;
    uint32_t root;
    uint64_t file; /* number in the job */
};

/* All Replicas have this mode: a file with another is none, whatever the segments say. They need
 * not be mapped to see that, if the address space is small. */
#define IDENTITY_MODE (S_IFREG | 0400)

bool identity_of(const struct segments *seg, const struct stat *st,
                 struct identity *id);
void identity_stat(const struct index *ix, const struct entry *e, struct stat *out);
void identity_describe(const struct identity *id, struct stat *out);
bool identity_path(const struct identity *id, char out[PATH_BYTES_MAX]);
bool identity_origin_of_fd(const struct segments *seg, int fd, char out[PATH_BYTES_MAX],
                           uint64_t *file);
bool identity_origin_of_path(const struct segments *seg, int dirfd, const char *path,
                             char out[PATH_BYTES_MAX], uint64_t *file);

bool identity_bears(int fd, const struct identity *id);
bool identity_is(const struct identity *id, int fd);
bool identity_inode(const struct segments *seg, const struct stat *st, uint64_t *file);

enum {
    IDENTITY_OTHER = -1, /* not a Replica */
    IDENTITY_GONE = -2,  /* a Replica of a File that has lost its names */
    IDENTITY_TIER = -3,  /* a Replica by its own name, which must not be changed */
};

int identity_hold(const struct segments *seg, int fd, const struct stat *st,
                  uint64_t *file);
int identity_hold_path(const struct segments *seg, int dirfd, const char *path,
                       const struct stat *st, uint64_t *file);
bool identity_named(const struct segments *seg, int dirfd, const char *path);
int identity_error(int held);
int identity_hold_fd(const struct segments *seg, int fd);

#endif
