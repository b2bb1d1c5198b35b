/* before.h - a launcher of programs on several nodes that we stand in front of. */
#ifndef MONARCH_BEFORE_H
#define MONARCH_BEFORE_H

void before_warn(const char *program);

#endif
