/* transfer.h - one running copy into a Tier, or one check of a Replica found there. */
#ifndef MONARCH_TRANSFER_H
#define MONARCH_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "dataplane/engine.h"
#include "dataplane/seal.h"

enum {
    /* One byte more than a chunk is asked for, so that growth of the origin shows. */
    TRANSFER_BUFFER_BYTES = CHUNK_BYTES + 4096,
    TEMPORARY_BYTES = 1 + REPLICA_NAME_BYTES + 1 + 10 + sizeof(".part"),
};

/* All that is needed of the Catalog is copied here first: a thread that an origin holds
 * up may come back when the Catalog is no longer mapped. */
struct transfer {
    struct monarch_order order;
    uint32_t queue;            /* number of its root, also before it has begun */
    uint64_t age;              /* since when it waits, against others */
    bool running, lost;        /* see struct root_queue; under the engine's lock */
    _Atomic uint64_t moved_ns; /* when its last step has ended, or its first begun */
    uint8_t step;
    uint8_t from; /* enum source */
    bool begun;
    bool named; /* the temporary file has a name in the Tier */
    int tier;   /* descriptor of its directory; borrowed */
    int source, target;
    uint64_t dev, ino, size, tier_dev;
    int64_t mtime_ns, ctime_ns;
    uid_t owner;
    uint32_t root;
    char name[REPLICA_NAME_BYTES + 1];
    char temporary[TEMPORARY_BYTES];
    uint64_t *digest; /* of the Extent that is read now */
    uint64_t offset;
    uint64_t chain;          /* checksum of this Extent so far */
    struct sealing *sealing; /* the seal of this Extent, while it is being made */
    struct monarch_seal seal;
    uint64_t replica_ino;
    uint64_t bytes, ns;
    struct monarch_completion completion;
};

static inline bool transfer_adopts(const struct transfer *t)
{
    return t->order.kind & 2;
}

void transfer_init(struct transfer *t, const struct monarch_order *order);
int transfer_prepare(struct engine *e, struct transfer *t);
bool transfer_written(const struct engine *e, const struct transfer *t);
int transfer_publish(struct engine *e, struct transfer *t);
bool transfer_run(struct engine *e, struct transfer *t, uint8_t *buffer);
void transfer_end(struct transfer *t, int status);

/* One per source of bytes; each returns 0 or -errno and leaves its step in the Transfer. */
int origin_open(struct engine *e, struct transfer *t);
int origin_unchanged(struct transfer *t);
int adopt_open(struct transfer *t, uid_t euid);

/* copy.c */
int copy_create(struct engine *e, struct transfer *t);
int copy_write(struct transfer *t, const void *bytes, size_t n);
int copy_verify(struct transfer *t);
int copy_publish(struct engine *e, struct transfer *t);

/* files.c - system calls that are carried on until they are done */
ssize_t file_read(int fd, void *buffer, size_t n);
int file_write(int fd, const void *bytes, size_t n);
int file_openat(int dir, const char *path, int flags, mode_t mode);
struct timespec file_time(int64_t ns);

#endif
