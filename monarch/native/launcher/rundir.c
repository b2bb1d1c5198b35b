/* rundir.c - the run directory of a job on this node, and the two locks in it. */
#include "rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "descriptor.h"
#include "jobname.h"
#include "procstat.h"
#include "shared/home.h"

enum {
    DIR_MODE = 0700,
    PAUSE_MS_MAX = 16,
    STOPPED_MS_MAX = 3 * 1000, /* somebody may look at a launcher with a debugger */
    UNKNOWN_MS_MAX = 120 * 1000,
};

__attribute__((format(printf, 3, 4))) static int fault(struct rundir *run, int err,
                                                       const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(run->fault, sizeof(run->fault), format, args);
    va_end(args);
    return err;
}

/* open_private - opens a directory that must be ours alone: what somebody else could
 * have put in its place is refused. Returns the descriptor or -errno. */
static int open_private(struct rundir *run, const char *path)
{
    struct stat st;
    int fd = descriptor_keep(open(path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

    if (fd == -ELOOP || (fd == -ENOTDIR && !lstat(path, &st) && S_ISLNK(st.st_mode)))
        return fault(run, fd, "%s is a symbolic link, not a directory", path);
    if (fd < 0)
        return fault(run, fd, "%s: %s", path, strerror(-fd));
    if (fstat(fd, &st) < 0)
        memset(&st, 0, sizeof(st));
    if (st.st_uid == geteuid() && (st.st_mode & 07777) == DIR_MODE)
        return fd;
    close(fd);
    if (st.st_uid != geteuid())
        return fault(run, -EPERM, "%s belongs to user %u, not to you", path, st.st_uid);
    return fault(run, -EPERM, "%s has mode %04o, not 0700", path, st.st_mode & 07777u);
}

/* make_private - makes a directory unless it is there, and opens it. */
static int make_private(struct rundir *run, const char *path)
{
    mode_t before = umask(~(mode_t)DIR_MODE & 0777);
    int err = mkdir(path, DIR_MODE) < 0 ? -errno : 0;

    umask(before);
    if (err && err != -EEXIST)
        return fault(run, err, "cannot make %s: %s", path, strerror(-err));
    return open_private(run, path);
}

/* preloadable - the dynamic linker splits LD_PRELOAD at spaces and colons, and expands
 * dollars. */
static bool preloadable(const char *path)
{
    return path[0] == '/' && !strpbrk(path, " :$\t\n");
}

/* rundir_join - opens the run directory of the run that we are part of. */
int rundir_join(struct rundir *run, const char *path)
{
    if (strlen(path) >= sizeof(run->path) || !preloadable(path))
        return fault(run, -EINVAL, "not a run directory: %.200s", path);
    strcpy(run->path, path);
    run->fd = open_private(run, path);
    return run->fd < 0 ? run->fd : 0;
}

/* set_path - names the run directory of a job and node below a root; true if it is there
 * already. */
static bool set_path(struct rundir *run, const char *root, const struct jobname *name)
{
    snprintf(run->path, sizeof(run->path), "%.*s/%s.%s",
             (int)sizeof(run->path) - 2 * NAME_BYTES_MAX - 16, root, name->job,
             name->node);
    return home_is_ours(run->path);
}

/* make_below - makes the run directory below the root that the user has given. */
static int make_below(struct rundir *run, const char *given, const struct jobname *name)
{
    char root[PATH_MAX];
    int root_fd, n = snprintf(root, sizeof(root), "%s", given);

    if (n >= (int)sizeof(root) - 2 * NAME_BYTES_MAX - 16)
        return fault(run, -ENAMETOOLONG, "MONARCH_STAGING_RUN_DIR is too long");
    if (!preloadable(root))
        return fault(run, -EINVAL,
                     "MONARCH_STAGING_RUN_DIR must be an absolute path without "
                     "spaces, colons or dollars: %s",
                     root);
    while (n > 1 && root[n - 1] == '/')
        root[--n] = '\0';
    root_fd = make_private(run, root);
    if (root_fd < 0)
        return root_fd;
    close(root_fd);
    set_path(run, root, name);
    return 0;
}

/* make_at_home - makes it in a home of ours: the one that has it already, although the
 * usual name may have been taken, or given back, since. */
static int make_at_home(struct rundir *run, const struct jobname *name)
{
    char usual[HOME_BYTES_MAX], home[HOME_BYTES_MAX];
    struct homes all;
    int err, fd;

    if (home_plain(HOME_BASE, usual) && home_is_ours(usual) &&
        set_path(run, usual, name))
        return 0;
    home_list(HOME_BASE, &all);
    for (int i = 0; i < all.count; i++)
        if (set_path(run, all.path[i], name))
            return 0;
    err = home_choose(HOME_BASE, true, home);
    if (err)
        return fault(run, err, "cannot make %s: %s", home, strerror(-err));
    fd = open_private(run, home);
    if (fd < 0)
        return fd;
    close(fd);
    set_path(run, home, name);
    run->moved = strcmp(home, usual) != 0;
    if (run->moved && (fd = open_private(run, usual)) >= 0) /* for the reason */
        close(fd);
    return 0;
}

/* rundir_make - opens the run directory of a job and node, made if it is new. */
int rundir_make(struct rundir *run, const struct jobname *name)
{
    const char *given = getenv("MONARCH_STAGING_RUN_DIR");
    int err = given && *given ? make_below(run, given, name) : make_at_home(run, name);
    bool moved = run->moved;

    if (err)
        return err;
    run->fd = make_private(run, run->path);
    run->moved = moved && run->fd >= 0;
    return run->fd < 0 ? run->fd : 0;
}

/* rundir_renew - makes the directory again if an agent has removed it. */
int rundir_renew(struct rundir *run)
{
    struct stat st;

    if (!fstat(run->fd, &st) && st.st_nlink)
        return 0;
    close(run->fd);
    run->fd = make_private(run, run->path);
    return run->fd < 0 ? run->fd : 0;
}

/* rundir_agent_lives - an agent holds `lock` for its whole life. The lock is touched only
 * when the agent may be dead, and released at once. */
bool rundir_agent_lives(const struct rundir *run)
{
    int fd = openat(run->fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool lives;

    if (fd < 0)
        return false;
    lives = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return lives;
}

/* same_file - an ending agent removes its run directory, and with it the file that we
 * have just locked. */
static bool same_file(const struct rundir *run, int fd)
{
    struct stat ours, there;
    char path[PATH_MAX + 8];

    snprintf(path, sizeof(path), "%s/start", run->path);
    return !fstat(fd, &ours) && !lstat(path, &there) && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

/* holder_of - who says in the locked file that the lock is his; 0 = nobody. */
static pid_t holder_of(int fd)
{
    char text[16] = "";

    return pread(fd, text, sizeof(text) - 1, 0) > 0 ? (pid_t)atoi(text) : 0;
}

/* patience_ms - how long to wait for a holder in this state. One that runs is bounded by
 * what it waits for itself: nodes may take minutes to meet. */
static long patience_ms(pid_t holder)
{
    if (procstat_stopped(holder))
        return STOPPED_MS_MAX;
    return holder && procstat_start(holder) ? LONG_MAX : UNKNOWN_MS_MAX;
}

/* await_lock - waits until the lock is free; -ETIMEDOUT with its holder if that one has
 * been stopped, or unknown, for too long. */
static int await_lock(int fd, pid_t *holder)
{
    long pause_ms = 1, since_ms = clock_now_ms(), patience = -1;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        const struct timespec pause = {.tv_nsec = pause_ms * 1000000L};
        const long before = patience, now_ms = clock_now_ms();

        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        *holder = holder_of(fd);
        patience = patience_ms(*holder);
        if (patience != before)
            since_ms = now_ms;
        if (now_ms - since_ms >= patience)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
        if (pause_ms < PAUSE_MS_MAX)
            pause_ms *= 2;
    }
    return 0;
}

/* sign - writes our pid into the locked file, for those who wait for us. */
static void sign(int fd)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "%10d\n", (int)getpid());

    if (pwrite(fd, text, (size_t)n, 0) != n)
        return; /* there is no room: nobody will know that we are stopped */
}

/* rundir_start_lock - waits for the right to look for or to start the agent. Returns the
 * descriptor that holds it, -ESTALE when the directory has gone, -ETIMEDOUT with the
 * holder's pid where that one stands still, or -errno. */
int rundir_start_lock(const struct rundir *run, pid_t *holder)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    int err, fd = descriptor_keep(openat(run->fd, "start", flags, 0600));

    if (fd < 0)
        return fd == -ENOENT ? -ESTALE : fd;
    err = await_lock(fd, holder);
    if (!err && same_file(run, fd)) {
        sign(fd);
        return fd;
    }
    close(fd);
    return err ? err : -ESTALE;
}

/* rundir_drop - removes the directory if nothing is in it. */
void rundir_drop(const struct rundir *run)
{
    rmdir(run->path);
}

/* rundir_close - forgets the run directory. */
void rundir_close(struct rundir *run)
{
    if (run->fd >= 0)
        close(run->fd);
    run->fd = -1;
}
