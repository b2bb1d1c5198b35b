/* hostsjob.h - the name of a job whose nodes are given as a list. */
#ifndef MONARCH_HOSTSJOB_H
#define MONARCH_HOSTSJOB_H

#include <stdbool.h>
#include <stddef.h>

struct arguments;

bool hostsjob_name(char *text, size_t bytes, const struct arguments *args);

#endif
