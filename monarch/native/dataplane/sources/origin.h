/* origin.h - opens and compares Files of the Source "origin". What a Source does in each state of a
 * Transfer is its route, see transfers/transfer.h. */
#ifndef MONARCH_ORIGIN_H
#define MONARCH_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataplane/extents/job.h"

/* A File in the Catalog. All that is needed is copied here first: a thread whose system call
 * hangs may return when the Catalog is no longer mapped. */
struct original {
    uint32_t file, root;
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
    uid_t owner;
    uint8_t step;     /* enum monarch_step: the last one */
    bool drops_pages; /* of the origin's file, once they are copied */
};

int origin_find(const struct job *job, uint32_t file, struct original *out);
int origin_open(const struct job *job, struct original *o);
int origin_same(struct original *o, int fd);
int origin_unchanged(struct original *o, int fd);

struct origin_range { /* of an open file */
    int fd;
    uint64_t offset, bytes;
};

void origin_drop(const struct job *job, const struct original *o,
                 const struct origin_range *read);

#endif
