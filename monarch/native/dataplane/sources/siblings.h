/* siblings.h - other jobs of this user on this node, as a Source: a READY Replica in a Tier on the
 * same file system is linked, not copied. */
#ifndef MONARCH_SIBLINGS_H
#define MONARCH_SIBLINGS_H

#include <sys/types.h>

#include "dataplane/sources/origin.h"

struct siblings;

struct sibling_copy { /* a Replica of another job */
    int fd;
    ino_t ino;
};

struct sought { /* a File, for a Tier */
    const struct original *original;
    const char *name; /* of its Replica */
    dev_t tier_dev;
    bool yields; /* this job does not wait for it while its programs do */
};

int siblings_new(struct job *job, bool shares_memory, struct siblings **out);
void siblings_free(struct siblings *s);
int siblings_add(struct siblings *s, const char *run);
int siblings_find(struct siblings *s, const struct sought *file,
                  struct sibling_copy *out);
bool siblings_await(struct siblings *s, const struct sought *file, uint64_t until_ns);

#endif
