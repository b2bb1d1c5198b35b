/* hydra.h - the name of a launch by MPICH's mpiexec. */
#ifndef MONARCH_HYDRA_H
#define MONARCH_HYDRA_H

#include <stdbool.h>
#include <stddef.h>

bool hydra_name(char *text, size_t bytes);

#endif
