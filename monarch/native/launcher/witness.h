/* witness.h - whether a signal came to us alone. */
#ifndef MONARCH_WITNESS_H
#define MONARCH_WITNESS_H

#include <stdbool.h>
#include <sys/types.h>

pid_t witness_start(void);
bool witness_saw(pid_t *witness, int signo);
void witness_end(pid_t *witness);

#endif
