/* attend.h - having an agent: finding this node's, or starting it, and waiting for it. */
#ifndef MONARCH_ATTEND_H
#define MONARCH_ATTEND_H

#include "verdict.h"

struct run;

struct verdict attend(struct run *run);

#endif
