/* large_reads.h - reads of large Files whose descriptors lead to the origin. */
#ifndef MONARCH_LARGE_H
#define MONARCH_LARGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "shim/names/attached.h"
#include "shared/presence.h"

/* State of descriptors, by number. It only spares descriptors of other files the look at their
 * target; that look alone decides. */
enum {
    DESCRIPTORS_MAX = 2048, /* reads by higher numbers are the origin's */
    DESCRIPTOR_UNKNOWN = 0,
    DESCRIPTOR_OTHER,
    DESCRIPTOR_LARGE,
};

struct large { /* the File that a descriptor leads to */
    const struct segments *seg;
    const struct index *ix;
    const struct entry *entry;
    uint64_t file, size;
    uint32_t root, large; /* and its number among the large ones */
};

extern _Atomic uint8_t large_descriptors[DESCRIPTORS_MAX];
extern atomic_bool large_opened; /* this process has opened a large File */

void large_note(int fd, uint64_t file);
void large_expect(int fd);
void large_mapped(int fd);
bool large_find(int fd, struct large *out);
bool large_serve(int fd, const struct iovec *pieces, int count, const off64_t *at,
                 ssize_t *got);
bool large_serve_pieces(int fd, const struct iovec *pieces, int count,
                        const off64_t *at, ssize_t *got);

/* read_ahead.c */
bool read_ahead_is_random(int fd, const struct large *l, uint64_t at);
void read_ahead(int fd, const struct large *l, uint64_t at, uint64_t n);

/* large_suspect - reads by this descriptor may be those of a large File. */
static inline bool large_suspect(int fd)
{
    return atomic_load_explicit(&large_opened, memory_order_relaxed) && fd >= 0 &&
           fd < DESCRIPTORS_MAX &&
           atomic_load_explicit(&large_descriptors[fd], memory_order_relaxed) !=
               DESCRIPTOR_OTHER;
}

/* large_known - a large File was opened under this number. */
static inline bool large_known(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS_MAX &&
           atomic_load_explicit(&large_descriptors[fd], memory_order_relaxed) ==
               DESCRIPTOR_LARGE;
}

#endif
