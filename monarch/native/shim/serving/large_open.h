/* large_open.h - whether the open of a File that is not staged yet waits for it. */
#ifndef MONARCH_LARGE_OPEN_H
#define MONARCH_LARGE_OPEN_H

#include "shim/serving/redirects.h"

bool large_open_waits(struct redirect *s, uint32_t word, enum counter *why);

#endif
