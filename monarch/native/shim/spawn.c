/* spawn.c - posix_spawn(), which calls no exec function that could be interposed. */
#include <errno.h>

#include "actions.h"
#include "launch.h"
#include "next.h"

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    LAUNCH(l, envp)
    pid_t child = 0;
    char *const *env = launch_environment(&l, path, envp);
    actions_trace(actions);
    int error = NEXT(posix_spawn)(&child, path, actions, attr, argv, env);
    if (error == E2BIG)
        error = NEXT(posix_spawn)(&child, path, actions, attr, argv, envp);
    actions_trace(actions);
    if (error == 0)
        launch_spawned(&l, child, path);
    if (error == 0 && pid)
        *pid = child;
    return error;
}

int posix_spawnp(pid_t *pid, const char *file,
                 const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    LAUNCH(l, envp)
    pid_t child = 0;
    char *const *env = launch_environment(&l, NULL, envp);
    actions_trace(actions);
    int error = NEXT(posix_spawnp)(&child, file, actions, attr, argv, env);
    if (error == E2BIG)
        error = NEXT(posix_spawnp)(&child, file, actions, attr, argv, envp);
    actions_trace(actions);
    if (error == 0)
        launch_spawned(&l, child, file);
    if (error == 0 && pid)
        *pid = child;
    return error;
}
