/* spawn_actions.h - files that posix_spawn() will open in a child. */
#ifndef MONARCH_SPAWN_ACTIONS_H
#define MONARCH_SPAWN_ACTIONS_H

#include <spawn.h>

void actions_trace(const posix_spawn_file_actions_t *actions);

#endif
