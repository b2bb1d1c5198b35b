/* sibling_catalog.h - the Catalog of another job of this user, and the state of its Transfers: read
 * by system calls, so that no state of these files can hurt this process. */
#ifndef MONARCH_SIBLING_CATALOG_H
#define MONARCH_SIBLING_CATALOG_H

#include <stdint.h>

#include "dataplane/sources/origin.h"

struct sibling_catalog {
    struct catalog head;  /* a copy */
    struct index *blocks; /* copies of the heads of its index blocks, one per root */
    int catalog, requests;
    const uint32_t *states; /* mapped for futex(2) alone, which checks the address */
};

struct named_file { /* a File of this job, by its path below its root */
    uint64_t root_hash;
    const char *path;
    size_t path_bytes;
    const struct original *original;
};

int sibling_catalog_open(const char *run, struct sibling_catalog *out);
void sibling_catalog_close(struct sibling_catalog *c);

int64_t sibling_catalog_number(const struct sibling_catalog *c,
                               const struct named_file *file);
uint32_t sibling_catalog_word(const struct sibling_catalog *c, uint64_t number);
uint32_t sibling_catalog_progress(const struct sibling_catalog *c, uint64_t number);
uint64_t sibling_catalog_beat(const struct sibling_catalog *c);
void sibling_catalog_wait(const struct sibling_catalog *c, uint64_t number,
                          uint32_t seen, uint64_t ns);

#endif
