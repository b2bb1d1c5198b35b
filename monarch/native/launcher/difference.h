/* difference.h - a running agent that was started with other options than ours. */
#ifndef MONARCH_DIFFERENCE_H
#define MONARCH_DIFFERENCE_H

struct run;

void difference_warn(const struct run *run);

#endif
