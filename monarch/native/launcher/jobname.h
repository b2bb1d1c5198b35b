/* jobname.h - the names of the job and of this node. */
#ifndef MONARCH_JOBNAME_H
#define MONARCH_JOBNAME_H

#include <stdbool.h>

enum { NAME_BYTES_MAX = 64 };

struct arguments;

struct jobname {
    char job[NAME_BYTES_MAX + 1];
    char node[NAME_BYTES_MAX + 1];
    bool shared; /* other launchers of the job find the same name */
};

void jobname_find(struct jobname *name, const struct arguments *args);

#endif
