/* failure.h - an agent that could not start, remembered for the launchers beside us. */
#ifndef MONARCH_FAILURE_H
#define MONARCH_FAILURE_H

#include "verdict.h"

struct run;

void failure_leave(struct run *run, const struct verdict *verdict);
struct verdict failure_found(const struct run *run);

#endif
