/* procstat.h - what the kernel tells of a process. */
#ifndef MONARCH_PROCSTAT_H
#define MONARCH_PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

uint64_t procstat_start(pid_t pid);
bool procstat_stopped(pid_t pid);
pid_t procstat_parent(pid_t pid);

#endif
