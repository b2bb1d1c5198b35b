/* agent.h - starting the agent of this node. */
#ifndef MONARCH_AGENT_H
#define MONARCH_AGENT_H

struct run;

int agent_start(const struct run *run, const char *python);

#endif
