/* run_home.h - the private directory of a user on a medium that other users can write to.
 *
 * It is BASE/monarch-UID. Another user can occupy that name, but cannot create a
 * directory that this user owns: in that case it is BASE/monarch-UID.RANDOM, which all
 * processes of the user find by its owner and mode. The functions are inline because
 * shared/ is linked into the Shim, which must not contain calls of malloc or stdio. */
#ifndef MONARCH_RUN_HOME_H
#define MONARCH_RUN_HOME_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The default place of the run directories. */
#define HOME_BASE "/dev/shm"

enum {
    HOME_BYTES_MAX = 256, /* of a path; a Tier's is shorter */
    HOME_MODE = 0700,
    HOMES_MAX = 8,
    HOME_TURNS_MAX =
        100, /* of 10 ms each: any user can hold the lock of a shared base */
};

struct homes {
    /* The plain name first, if this user owns it. */
    char path[HOMES_MAX][HOME_BYTES_MAX];
    int count;
};

/* home_is_ours - whether a path is a directory that no other user can change. */
static inline bool home_is_ours(const char *path)
{
    struct stat st;

    return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 07777) == HOME_MODE;
}

/* home_plain - writes the plain name; false if it is too long. */
static inline bool home_plain(const char *base, char out[HOME_BYTES_MAX])
{
    return snprintf(out, HOME_BYTES_MAX, "%s/monarch-%u", base, (unsigned)geteuid()) <
           HOME_BYTES_MAX - 16;
}

/* home_add - keeps the smallest names in order, so that all processes agree on the
 * first. */
static inline void home_add(struct homes *all, int first, const char *path)
{
    int at = all->count;

    if (all->count < HOMES_MAX)
        all->count++;
    else if (strcmp(path, all->path[--at]) >= 0)
        return;
    for (; at > first && strcmp(path, all->path[at - 1]) < 0; at--)
        memcpy(all->path[at], all->path[at - 1], HOME_BYTES_MAX);
    snprintf(all->path[at], HOME_BYTES_MAX, "%s", path);
}

/* home_list - finds the existing private directories. */
static inline void home_list(const char *base, struct homes *all)
{
    char plain[HOME_BYTES_MAX], path[HOME_BYTES_MAX];
    struct dirent *one;
    DIR *names;
    size_t n;

    all->count = 0;
    if (!home_plain(base, plain))
        return;
    if (home_is_ours(plain))
        home_add(all, 0, plain);
    n = strlen(plain) - strlen(base) - 1;
    names = opendir(base);
    for (int first = all->count; names && (one = readdir(names));) {
        if (strncmp(one->d_name, plain + strlen(base) + 1, n) || one->d_name[n] != '.')
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", base, one->d_name) < HOME_BYTES_MAX &&
            home_is_ours(path))
            home_add(all, first, path);
    }
    if (names)
        closedir(names);
}

/* home_name - writes a random name, which no other user can have occupied. */
static inline int home_name(const char *base, char out[HOME_BYTES_MAX])
{
    uint64_t random = 0;
    size_t n;

    if (syscall(SYS_getrandom, &random, sizeof(random), 0) != sizeof(random))
        return -ENOSYS;
    home_plain(base, out);
    n = strlen(out);
    snprintf(out + n, HOME_BYTES_MAX - n, ".%012llx",
             (unsigned long long)(random & 0xffffffffffffu));
    return 0;
}

static inline int home_mkdir(const char *path)
{
    mode_t before = umask(~(mode_t)HOME_MODE & 0777);
    int err = mkdir(path, HOME_MODE) < 0 ? -errno : 0;

    umask(before);
    return err;
}

/* home_lock - lets one process at a time choose a random name. Without the lock, which
 * another user can hold for ever, two processes may choose two names. */
static inline int home_lock(const char *base)
{
    const struct timespec turn = {.tv_nsec = 10 * 1000000L};
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (i == HOME_TURNS_MAX)
            break;
        nanosleep(&turn, NULL);
    }
    return fd;
}

/* home_choose - writes the path of the private directory to be used; `make` creates it
 * if it does not exist. Returns 0 or -errno; after a failure `out` is the plain
 * name. */
static inline int home_choose(const char *base, bool make, char out[HOME_BYTES_MAX])
{
    struct homes all;
    struct stat st;
    int err, lock;

    if (!home_plain(base, out)) {
        out[0] = '\0';
        return -ENAMETOOLONG;
    }
    home_list(base, &all);
    if (!all.count && lstat(out, &st) < 0) {
        err = make ? home_mkdir(out) : 0;
        if (err != -EEXIST)
            return err;
        home_list(base, &all);
    } else if (!all.count && S_ISDIR(st.st_mode) && st.st_uid == geteuid()) {
        return 0; /* its mode is too open: its use fails with that message */
    }
    if (!all.count && !make)
        return home_name(base, out);
    lock = all.count ? -1 : home_lock(base);
    if (!all.count)
        home_list(base, &all);
    err = 0;
    if (all.count)
        memcpy(out, all.path[0], HOME_BYTES_MAX);
    else if (!home_name(base, out))
        err = home_mkdir(out);
    if (lock >= 0)
        close(lock);
    return err;
}

#endif
