/* mapping.h - mappings of large Files. */
#ifndef MONARCH_MAPPING_H
#define MONARCH_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct mapping { /* the arguments of mmap(2) */
    void *at;
    size_t n;
    int prot, flags, fd;
    off_t offset;
};

/* mapping_failed - it is -errno, no address. */
static inline bool mapping_failed(long got)
{
    return (unsigned long)got > -4096ul;
}

long mapping_make(const struct mapping *m, int fd);
bool mapping_serve(const struct mapping *m, void **got);

#endif
