/* await.h - waiting until an agent is ready, fails or falls silent. */
#ifndef MONARCH_AWAIT_H
#define MONARCH_AWAIT_H

#include "verdict.h"

struct run;

struct verdict await_notices(struct run *run, int *lock);
struct verdict await_state(struct run *run, int lock);

#endif
