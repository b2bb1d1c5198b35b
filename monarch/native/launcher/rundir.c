/* rundir.c - the run directory of a job on this node, and its two locks. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/run_home.h"

enum {
    DIR_MODE = 0700,
    PAUSE_MS_MAX = 16,
    STOPPED_MS_MAX = 3 * 1000, /* a debugger may stop a launcher for a moment */
    UNKNOWN_MS_MAX = 120 * 1000,
};

/* set_error - stores why the directory cannot be used; returns err. */
__attribute__((format(printf, 3, 4))) static int set_error(struct rundir *dir, int err,
                                                           const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(dir->error, sizeof(dir->error), format, args);
    va_end(args);
    return err;
}

/* open_private - opens a directory that must belong to this user with mode 0700; anything
 * that another user may have put in its place is refused. Returns the descriptor or
 * -errno. */
static int open_private(struct rundir *dir, const char *path)
{
    struct stat st;
    int fd = fd_above_stdio(open(path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

    if (fd == -ELOOP || (fd == -ENOTDIR && !lstat(path, &st) && S_ISLNK(st.st_mode)))
        return set_error(dir, fd, "%s is a symbolic link, not a directory", path);
    if (fd < 0)
        return set_error(dir, fd, "%s: %s", path, strerror(-fd));
    if (fstat(fd, &st) < 0)
        memset(&st, 0, sizeof(st));
    if (st.st_uid == geteuid() && (st.st_mode & 07777) == DIR_MODE)
        return fd;
    close(fd);
    if (st.st_uid != geteuid())
        return set_error(dir, -EPERM, "%s belongs to user %u, not to you", path,
                         st.st_uid);
    return set_error(dir, -EPERM, "%s has mode %04o, not 0700", path,
                     st.st_mode & 07777u);
}

/* make_private - creates a directory unless it exists, and opens it. */
static int make_private(struct rundir *dir, const char *path)
{
    mode_t before = umask(~(mode_t)DIR_MODE & 0777);
    int err = mkdir(path, DIR_MODE) < 0 ? -errno : 0;

    umask(before);
    if (err && err != -EEXIST)
        return set_error(dir, err, "cannot make %s: %s", path, strerror(-err));
    return open_private(dir, path);
}

/* preload_accepts - whether a path can be part of LD_PRELOAD: the dynamic linker splits the
 * value at spaces and colons, and expands dollars. */
static bool preload_accepts(const char *path)
{
    return path[0] == '/' && !strpbrk(path, " :$\t\n");
}

/* rundir_join - opens the run directory of the run that this process is part of. */
int rundir_join(struct rundir *dir, const char *path)
{
    if (strlen(path) >= sizeof(dir->path) || !preload_accepts(path))
        return set_error(dir, -EINVAL, "not a run directory: %.200s", path);
    strcpy(dir->path, path);
    dir->fd = open_private(dir, path);
    return dir->fd < 0 ? dir->fd : 0;
}

/* set_path - sets the path of a job's run directory below a root; true if it exists. */
static bool set_path(struct rundir *dir, const char *root, const struct job *job)
{
    snprintf(dir->path, sizeof(dir->path), "%.*s/%s.%s",
             (int)sizeof(dir->path) - 2 * NAME_BYTES_MAX - 16, root, job->name,
             job->node);
    return home_is_ours(dir->path);
}

/* make_below - sets the path below MONARCH_STAGING_RUN_DIR, and creates that root. */
static int make_below(struct rundir *dir, const char *given, const struct job *job)
{
    char root[PATH_MAX];
    int root_fd, n = snprintf(root, sizeof(root), "%s", given);

    if (n >= (int)sizeof(root) - 2 * NAME_BYTES_MAX - 16)
        return set_error(dir, -ENAMETOOLONG, "MONARCH_STAGING_RUN_DIR is too long");
    if (!preload_accepts(root))
        return set_error(dir, -EINVAL,
                         "MONARCH_STAGING_RUN_DIR must be an absolute path without "
                         "spaces, colons or dollars: %s",
                         root);
    while (n > 1 && root[n - 1] == '/')
        root[--n] = '\0';
    root_fd = make_private(dir, root);
    if (root_fd < 0)
        return root_fd;
    close(root_fd);
    set_path(dir, root, job);
    return 0;
}

/* make_at_home - sets the path below a home of this user: the one that already has the run
 * directory, even if another user has taken or freed the usual name since. */
static int make_at_home(struct rundir *dir, const struct job *job)
{
    char usual[HOME_BYTES_MAX], home[HOME_BYTES_MAX];
    struct homes all;
    int err, fd;

    if (home_plain(HOME_BASE, usual) && home_is_ours(usual) &&
        set_path(dir, usual, job))
        return 0;
    home_list(HOME_BASE, &all);
    for (int i = 0; i < all.count; i++)
        if (set_path(dir, all.path[i], job))
            return 0;
    err = home_choose(HOME_BASE, true, home);
    if (err)
        return set_error(dir, err, "cannot make %s: %s", home, strerror(-err));
    fd = open_private(dir, home);
    if (fd < 0)
        return fd;
    close(fd);
    set_path(dir, home, job);
    dir->relocated = strcmp(home, usual) != 0;
    if (dir->relocated && (fd = open_private(dir, usual)) >= 0) /* sets the reason */
        close(fd);
    return 0;
}

/* rundir_make - opens the run directory of a job on this node, and creates it if it is
 * new. */
int rundir_make(struct rundir *dir, const struct job *job)
{
    const char *given = getenv("MONARCH_STAGING_RUN_DIR");
    int err = given && *given ? make_below(dir, given, job) : make_at_home(dir, job);
    bool moved = dir->relocated;

    if (err)
        return err;
    dir->fd = make_private(dir, dir->path);
    dir->relocated = moved && dir->fd >= 0;
    return dir->fd < 0 ? dir->fd : 0;
}

/* rundir_renew - creates the directory again if an agent has removed it. */
int rundir_renew(struct rundir *dir)
{
    struct stat st;

    if (!fstat(dir->fd, &st) && st.st_nlink)
        return 0;
    close(dir->fd);
    dir->fd = make_private(dir, dir->path);
    return dir->fd < 0 ? dir->fd : 0;
}

/* rundir_agent_alive - whether an agent holds `lock`, which it does for its whole life.
 * The lock is tried only when the agent may be dead, and released at once. */
bool rundir_agent_alive(const struct rundir *dir)
{
    int fd = openat(dir->fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool alive;

    if (fd < 0)
        return false;
    alive = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return alive;
}

/* same_file - whether the locked file still has its name: an agent that ends removes its
 * run directory with it. */
static bool same_file(const struct rundir *dir, int fd)
{
    struct stat ours, there;
    char path[PATH_MAX + 8];

    snprintf(path, sizeof(path), "%s/start", dir->path);
    return !fstat(fd, &ours) && !lstat(path, &there) && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

/* holder_of - returns the pid that the holder has written into the locked file; 0 = none. */
static pid_t holder_of(int fd)
{
    char text[16] = "";

    return pread(fd, text, sizeof(text) - 1, 0) > 0 ? (pid_t)atoi(text) : 0;
}

/* lock_timeout_ms - returns how long to wait for a holder in this state. A running holder has
 * time-outs of its own: its agent may wait minutes for other nodes. */
static long lock_timeout_ms(pid_t holder)
{
    if (process_is_stopped(holder))
        return STOPPED_MS_MAX;
    return holder && process_start_ticks(holder) ? LONG_MAX : UNKNOWN_MS_MAX;
}

/* wait_for_lock - waits until the lock is free; -ETIMEDOUT with its holder if that one is
 * stopped, or unknown, for too long. */
static int wait_for_lock(int fd, pid_t *holder)
{
    long pause_ms = 1, since_ms = clock_now_ms(), limit_ms = -1;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        const struct timespec pause = {.tv_nsec = pause_ms * 1000000L};
        const long before_ms = limit_ms, now_ms = clock_now_ms();

        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        *holder = holder_of(fd);
        limit_ms = lock_timeout_ms(*holder);
        if (limit_ms != before_ms)
            since_ms = now_ms;
        if (now_ms - since_ms >= limit_ms)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
        if (pause_ms < PAUSE_MS_MAX)
            pause_ms *= 2;
    }
    return 0;
}

/* write_holder - writes the pid into the locked file, for launchers that wait for it. */
static void write_holder(int fd)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "%10d\n", (int)getpid());

    if (pwrite(fd, text, (size_t)n, 0) != n)
        return; /* without room for it, others cannot see that this process is stopped */
}

/* rundir_start_lock - waits for the lock under which a launcher looks for the agent or
 * starts it. Returns the descriptor that holds it, -ESTALE if the directory was removed,
 * -ETIMEDOUT with the holder's pid if the holder is stopped, or -errno. */
int rundir_start_lock(const struct rundir *dir, pid_t *holder)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    int err, fd = fd_above_stdio(openat(dir->fd, "start", flags, 0600));

    if (fd < 0)
        return fd == -ENOENT ? -ESTALE : fd;
    err = wait_for_lock(fd, holder);
    if (!err && same_file(dir, fd)) {
        write_holder(fd);
        return fd;
    }
    close(fd);
    return err ? err : -ESTALE;
}

/* rundir_remove_empty - removes the directory if it is empty. */
void rundir_remove_empty(const struct rundir *dir)
{
    rmdir(dir->path);
}

/* rundir_close - closes the run directory. */
void rundir_close(struct rundir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    dir->fd = -1;
}
