/* spawn.c - posix_spawn(), which calls no exec function that could be interposed, and its file
 * actions: their opens for writing happen in the child before any code of ours runs there. Their
 * paths are stored by the call that adds them, and marked before and after the child is started. */
#include <errno.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "shim/hooks/child_env.h"
#include "shim/names/identity.h"
#include "shim/base/next.h"
#include "shim/base/object.h"
#include "shim/base/sys.h"
#include "shim/names/invalidate.h"

enum { RECORDS = 16 };

enum kind { KIND_OPEN, KIND_DIRECTORY };

struct record {
    _Atomic(const void *) actions; /* NULL: free */
    _Atomic uint32_t kind;
    char path[PATH_BYTES_MAX]; /* absolute, or from this process's working directory */
};

static struct record records[RECORDS];

/* claim - returns a free record; NULL: none, and the path is marked now or never. */
static struct record *claim(const void *actions)
{
    for (size_t i = 0; i < RECORDS; i++) {
        const void *free = NULL;
        if (atomic_compare_exchange_strong(&records[i].actions, &free, actions))
            return &records[i];
    }
    return NULL;
}

/* next_of - returns the next record of this kind for these actions. */
static struct record *next_of(struct record *from, const void *actions, enum kind kind)
{
    for (struct record *r = from; r < records + RECORDS; r++)
        if (atomic_load(&r->actions) == actions && atomic_load(&r->kind) == kind)
            return r;
    return NULL;
}

static void forget(const void *actions)
{
    for (size_t i = 0; i < RECORDS; i++)
        if (atomic_load(&records[i].actions) == actions) {
            records[i].path[0] = 0;
            atomic_store(&records[i].actions, NULL);
        }
}

/* join - writes a path as it resolves after the earlier changes of directory. */
static bool join(const void *actions, const char *path, char out[PATH_BYTES_MAX])
{
    const struct record *base = path[0] == '/'
                                    ? NULL
                                    : next_of(records, actions, KIND_DIRECTORY);
    size_t head = base ? strlen(base->path) : 0, n = strlen(path);
    if (head + 1 + n >= PATH_BYTES_MAX)
        return false;
    memmove(out + head + (head > 0), path, n + 1);
    if (head) {
        memmove(out, base->path, head);
        out[head] = '/';
    }
    return true;
}

/* remember - stores the path that an action opens, or the directory from which later ones do. */
static void remember(const void *actions, const char *path, enum kind kind)
{
    SCRATCH(full);
    if (!path || !full || !attach_for_marking() || !join(actions, path, full))
        return;
    struct record *r = kind == KIND_DIRECTORY ? next_of(records, actions, kind) : NULL;
    if (!r)
        r = claim(actions);
    if (r) {
        memcpy(r->path, full, strlen(full) + 1);
        atomic_store(&r->kind, kind);
    }
    if (kind ==
        KIND_OPEN) /* programs may copy actions, which we know by their address */
        invalidate_path(attach_for_marking(), AT_FDCWD, full, CHANGE_BYTES, true);
}

/* invalidate_actions - marks all files that these actions open for writing, as they are now. */
static void invalidate_actions(const posix_spawn_file_actions_t *actions)
{
    struct record *r = actions ? next_of(records, actions, KIND_OPEN) : NULL;
    for (; r; r = next_of(r + 1, actions, KIND_OPEN)) {
        invalidate_path(attach_for_marking(), AT_FDCWD, r->path, CHANGE_BYTES, true);
        invalidate_path(attach_for_marking(), AT_FDCWD, r->path, CHANGE_CREATE, true);
    }
}

/* led - returns the path that an action must open: the origin's file instead of a Replica, by its
 * path because the child has no descriptor of ours; NULL: neither, with errno. */
static const char *led(const struct segments *seg, const char *path, char *origin)
{
    struct stat st;
    uint64_t file;
    if (!path || !origin || !object_at(AT_FDCWD, path, true, &st))
        return path;
    int held = identity_hold_path(seg, AT_FDCWD, path, &st, &file);
    if (held == IDENTITY_OTHER)
        return path;
    if (held >= 0)
        sys_close(held);
    else
        errno = identity_error(held);
    return held >= 0 && identity_origin_of_path(seg, AT_FDCWD, path, origin, &file)
               ? origin
               : NULL;
}

/* An action that would open a Replica opens the origin's file instead. */
int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions, int fd,
                                     const char *path, int flags, mode_t mode)
{
    const struct segments *seg = flags & (O_ACCMODE | O_TRUNC) ? attach_for_marking()
                                                               : NULL;
    int kept = errno;
    SCRATCH(origin);
    const char *volatile given = path; /* headers promise that it is not NULL */
    const char *named = seg ? led(seg, given, origin) : path;
    if (seg && given && !named) {
        int refused = errno;
        errno = kept;
        return refused;
    }
    int error = NEXT(posix_spawn_file_actions_addopen)(actions, fd, named, flags, mode);
    if (seg && error == 0)
        remember(actions, named, KIND_OPEN);
    return error;
}

int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions,
                                         const char *path)
{
    int error = NEXT(posix_spawn_file_actions_addchdir_np)(actions, path);
    if (error == 0)
        remember(actions, path, KIND_DIRECTORY);
    return error;
}

int posix_spawn_file_actions_addfchdir_np(posix_spawn_file_actions_t *actions, int fd)
{
    char path[FD_NAME_BYTES];
    int error = NEXT(posix_spawn_file_actions_addfchdir_np)(actions, fd);
    sys_fd_name(path, fd);
    if (error == 0)
        remember(actions, path, KIND_DIRECTORY);
    return error;
}

int posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions)
{
    forget(actions);
    return NEXT(posix_spawn_file_actions_init)(actions);
}

int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *actions)
{
    forget(actions);
    return NEXT(posix_spawn_file_actions_destroy)(actions);
}

struct words {
    char *const *argv, *const *envp;
};

/* spawn_origin - starts the origin's file in place of a Replica, which is not executable. */
static int spawn_origin(pid_t *child, const char *path,
                        const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attr, const struct words *w)
{
    const struct segments *seg = attach_for_marking();
    uint64_t file;
    SCRATCH(origin);
    if (!seg || !origin || !identity_origin_of_path(seg, AT_FDCWD, path, origin, &file))
        return EACCES;
    return NEXT(posix_spawn)(child, origin, actions, attr, w->argv, w->envp);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    CHILD_ENV(l, envp)
    pid_t child = 0;
    char *const *env = child_environment(&l, path, envp);
    invalidate_actions(actions);
    int error = NEXT(posix_spawn)(&child, path, actions, attr, argv, env);
    if (error == E2BIG && env != envp) {
        error = NEXT(posix_spawn)(&child, path, actions, attr, argv, envp);
        if (error == 0)
            child_unseen(&l);
    }
    if (error == EACCES)
        error = spawn_origin(&child, path, actions, attr, &(struct words){argv, env});
    invalidate_actions(actions);
    if (error == 0)
        child_spawned(&l, child, path);
    if (error == 0 && pid)
        *pid = child;
    return error;
}

int posix_spawnp(pid_t *pid, const char *file,
                 const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    CHILD_ENV(l, envp)
    pid_t child = 0;
    char *const *env = child_environment(&l, NULL, envp);
    invalidate_actions(actions);
    int error = NEXT(posix_spawnp)(&child, file, actions, attr, argv, env);
    if (error == E2BIG && env != envp) {
        error = NEXT(posix_spawnp)(&child, file, actions, attr, argv, envp);
        if (error == 0)
            child_unseen(&l);
    }
    if (error == EACCES && strchr(file, '/'))
        error = spawn_origin(&child, file, actions, attr, &(struct words){argv, env});
    invalidate_actions(actions);
    if (error == 0)
        child_spawned(&l, child, file);
    if (error == 0 && pid)
        *pid = child;
    return error;
}
