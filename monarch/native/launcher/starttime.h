/* starttime.h - when a process was started. */
#ifndef MONARCH_STARTTIME_H
#define MONARCH_STARTTIME_H

#include <stdint.h>
#include <sys/types.h>

uint64_t starttime_of(pid_t pid);

#endif
