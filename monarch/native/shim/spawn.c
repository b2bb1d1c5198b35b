/* spawn.c - posix_spawn(), which calls no exec function that could be interposed. */
#include <errno.h>

#include "spawn_actions.h"
#include "identity.h"
#include "child_env.h"
#include "next.h"
#include "scratch.h"

struct words {
    char *const *argv, *const *envp;
};

/* spawn_origin - a Replica has no right to be executed: what a refused name of one stands
 * for is started under the origin's path. */
static int spawn_origin(pid_t *child, const char *path,
                        const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attr, const struct words *w)
{
    const struct board *b = board_marking();
    uint64_t file;
    SCRATCH(origin);
    if (!b || !origin || !identity_origin_of_path(b, AT_FDCWD, path, origin, &file))
        return EACCES;
    return NEXT(posix_spawn)(child, origin, actions, attr, w->argv, w->envp);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    LAUNCH(l, envp)
    pid_t child = 0;
    char *const *env = launch_environment(&l, path, envp);
    actions_trace(actions);
    int error = NEXT(posix_spawn)(&child, path, actions, attr, argv, env);
    if (error == E2BIG && env != envp) {
        error = NEXT(posix_spawn)(&child, path, actions, attr, argv, envp);
        if (error == 0)
            launch_unseen(&l);
    }
    if (error == EACCES)
        error = spawn_origin(&child, path, actions, attr, &(struct words){argv, env});
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
    if (error == E2BIG && env != envp) {
        error = NEXT(posix_spawnp)(&child, file, actions, attr, argv, envp);
        if (error == 0)
            launch_unseen(&l);
    }
    actions_trace(actions);
    if (error == 0)
        launch_spawned(&l, child, file);
    if (error == 0 && pid)
        *pid = child;
    return error;
}
