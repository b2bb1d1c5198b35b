/* scratch.h - memory for paths that is not on the stack: signal handlers of programs may run on one
 * of 8 KiB, most of which the kernel and the dynamic linker use. */
#ifndef MONARCH_SCRATCH_H
#define MONARCH_SCRATCH_H

#include "shared/layout.h"

char *scratch_take(void);
void scratch_give(char *piece);

static inline void scratch_leave(char **piece)
{
    if (*piece)
        scratch_give(*piece);
}

/* Declares a pointer to PATH_BYTES_MAX bytes, or NULL without memory; freed at the end of its
 * scope. */
#define SCRATCH(name) \
    char *name __attribute__((cleanup(scratch_leave))) = scratch_take()

#endif
