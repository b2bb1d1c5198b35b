/* farewell.h - the last words of the agent. */
#ifndef MONARCH_FAREWELL_H
#define MONARCH_FAREWELL_H

struct run;

void farewell_hear(struct run *run);
void farewell(struct run *run, int signals, int status);

#endif
