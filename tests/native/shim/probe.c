/* probe.c - calls one libc function by its name and prints the result.
 *
 *   probe open NAME PATH       "LINK CONTENTS" of the descriptor; write forms print "-"
 *   probe stat NAME PATH       "DEV INO MODE NLINK SIZE MTIME_NS" (by descriptor: fstat...)
 *   probe access NAME PATH     the result
 *   probe change NAME PATH     the result of a mutation
 *   probe exec NAME SELF       LD_PRELOAD of a program started with an empty environment
 *   probe leave NAME PATH      calls NAME, then prints the LINK of an open of PATH
 *   probe show                 LD_PRELOAD
 */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#if defined(__x86_64__)
enum { STAT_VERSION = 1 };
#else
enum { STAT_VERSION = 0 };
#endif

static const char *name;

static void *function(void)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        exit(77); /* this libc has no such function */
    return found;
}

#define CALL(type, parameters) ((type(*) parameters)function())
#define IS(text) (strcmp(name, text) == 0)
#define STARTS(text) (strncmp(name, text, strlen(text)) == 0)
#define ENDS(text)                   \
    (strlen(name) >= strlen(text) && \
     strcmp(name + strlen(name) - strlen(text), text) == 0)

/* parent_of - a descriptor of the directory of a path, and its last component. */
static int parent_of(const char *path, const char **last)
{
    char dir[4096];
    *last = strrchr(path, '/') + 1;
    snprintf(dir, sizeof(dir), "%.*s", (int)(*last - path), path);
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        err(1, "%s", dir);
    return fd;
}

static void show_descriptor(int fd)
{
    char proc[64], link[4096] = "", text[16] = "";
    if (fd < 0)
        err(1, "%s", name);
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    if (readlink(proc, link, sizeof(link) - 1) < 0 || read(fd, text, 5) < 0)
        strcpy(text, "-");
    printf("%s %s\n", link, text);
}

static int open_by_name(const char *path)
{
    const char *last;
    if (STARTS("creat"))
        return CALL(int, (const char *, mode_t))(path, 0644);
    if (ENDS("fopen") || STARTS("fopen") || STARTS("freopen")) {
        FILE *f = !STARTS("freopen")
                      ? CALL(FILE *, (const char *, const char *))(path, "re")
                      : CALL(FILE *, (const char *, const char *, FILE *))(path, "r",
                                                                           stdin);
        return f ? fileno(f) : -1;
    }
    if (strstr(name, "openat")) {
        int dir = parent_of(path, &last);
        return CALL(int, (int, const char *, int, ...))(dir, last, O_RDONLY);
    }
    return CALL(int, (const char *, int, ...))(path, O_RDONLY | O_CLOEXEC);
}

static void show_stat(const struct stat *st)
{
    printf("%llu %llu %o %llu %lld %lld\n", (unsigned long long)st->st_dev,
           (unsigned long long)st->st_ino, st->st_mode,
           (unsigned long long)st->st_nlink, (long long)st->st_size,
           (long long)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec);
}

static void statx_by_name(const char *path, int fd)
{
    struct statx x;
    struct stat st = {0};
    int rc = CALL(int, (int, const char *, int, unsigned, struct statx *))(
        fd, fd >= 0 ? "" : path, fd >= 0 ? AT_EMPTY_PATH : 0, STATX_BASIC_STATS, &x);
    if (rc)
        err(1, "statx");
    st.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    st.st_ino = x.stx_ino;
    st.st_mode = x.stx_mode;
    st.st_nlink = x.stx_nlink;
    st.st_size = (off_t)x.stx_size;
    st.st_mtim.tv_sec = x.stx_mtime.tv_sec;
    st.st_mtim.tv_nsec = x.stx_mtime.tv_nsec;
    show_stat(&st);
}

static void stat_by_name(const char *path)
{
    struct stat st;
    const char *last = path;
    int rc, ver = STAT_VERSION, fd = open(path, O_RDONLY);
    if (IS("statx"))
        return statx_by_name(path, -1);
    if (STARTS("__fxstatat"))
        rc = CALL(int, (int, int, const char *, struct stat *, int))(
            ver, parent_of(path, &last), strrchr(path, '/') + 1, &st, 0);
    else if (STARTS("fstatat"))
        rc = CALL(int, (int, const char *, struct stat *, int))(
            parent_of(path, &last), strrchr(path, '/') + 1, &st, 0);
    else if (STARTS("__fxstat"))
        rc = CALL(int, (int, int, struct stat *))(ver, fd, &st);
    else if (STARTS("fstat"))
        rc = CALL(int, (int, struct stat *))(fd, &st);
    else if (STARTS("__"))
        rc = CALL(int, (int, const char *, struct stat *))(ver, path, &st);
    else
        rc = CALL(int, (const char *, struct stat *))(path, &st);
    if (rc)
        err(1, "%s", name);
    show_stat(&st);
}

static int access_by_name(const char *path)
{
    if (IS("faccessat"))
        return CALL(int, (int, const char *, int, int))(AT_FDCWD, path, R_OK, 0);
    return CALL(int, (const char *, int))(path, R_OK);
}

static int xattr_by_name(const char *path)
{
    char value[64] = "";
    int fd = IS("fsetxattr") || STARTS("fremove") || STARTS("fget") || STARTS("flist")
                 ? open(path, O_RDONLY)
                 : -1;
    const char *key = "user.probe";
    if (IS("fgetxattr") || IS("flistxattr")) {
        ssize_t n = IS("fgetxattr") ? fgetxattr(fd, key, value, sizeof(value))
                                    : flistxattr(fd, value, sizeof(value));
        printf("%s ", value);
        return (int)n;
    }
    if (IS("fsetxattr"))
        return fsetxattr(fd, key, "new", 3, 0);
    if (ENDS("setxattr"))
        return CALL(int, (const char *, const char *, const void *, size_t, int))(
            path, key, "new", 3, 0);
    if (IS("fremovexattr"))
        return fremovexattr(fd, key);
    return CALL(int, (const char *, const char *))(path, key);
}

static int times_by_name(const char *path)
{
    const struct timeval tv[2] = {{1000, 0}, {2000, 0}};
    const struct timespec ts[2] = {{1000, 0}, {2000, 0}};
    const struct utimbuf ub = {1000, 2000};
    if (IS("utime"))
        return utime(path, &ub);
    if (IS("utimes") || IS("lutimes"))
        return CALL(int, (const char *, const struct timeval *))(path, tv);
    if (IS("futimes"))
        return futimes(open(path, O_RDONLY), tv);
    if (IS("futimens"))
        return futimens(open(path, O_RDONLY), ts);
    if (IS("futimesat"))
        return futimesat(AT_FDCWD, path, tv);
    return utimensat(AT_FDCWD, path, ts, 0);
}

static int rights_by_name(const char *path)
{
    if (IS("chmod") || IS("lchmod"))
        return CALL(int, (const char *, mode_t))(path, 0640);
    if (IS("fchmod"))
        return fchmod(open(path, O_RDONLY), 0640);
    if (IS("fchmodat"))
        return fchmodat(AT_FDCWD, path, 0640, 0);
    if (IS("fchown"))
        return fchown(open(path, O_RDONLY), 12, 13);
    if (IS("fchownat"))
        return fchownat(open(path, O_RDONLY), "", 12, 13, AT_EMPTY_PATH);
    if (ENDS("chown"))
        return CALL(int, (const char *, uid_t, gid_t))(path, 12, 13);
    return CALL(int, (const char *, off_t))(path, 3); /* truncate */
}

static int create_by_name(const char *path)
{
    dev_t none = 0;
    const char *last;
    int dir = parent_of(path, &last);
    if (IS("mkdir") || IS("mkfifo"))
        return CALL(int, (const char *, mode_t))(path, 0700);
    if (IS("mkdirat") || IS("mkfifoat"))
        return CALL(int, (int, const char *, mode_t))(dir, last, 0700);
    if (IS("mknod"))
        return CALL(int, (const char *, mode_t, dev_t))(path, S_IFIFO | 0600, 0);
    if (IS("mknodat"))
        return CALL(int, (int, const char *, mode_t, dev_t))(dir, last, S_IFIFO | 0600,
                                                             0);
    if (IS("__xmknod"))
        return CALL(int, (int, const char *, mode_t, dev_t *))(0, path, S_IFIFO | 0600,
                                                               &none);
    if (IS("__xmknodat"))
        return CALL(int, (int, int, const char *, mode_t, dev_t *))(
            0, dir, last, S_IFIFO | 0600, &none);
    return IS("symlink") ? symlink("x", path) : symlinkat("x", dir, last);
}

/* The other name of rename() and link() is PATH with ".new" behind it. */
static int name_by_name(const char *path)
{
    char other[4096];
    const char *last, *new;
    int dir = parent_of(path, &last);
    snprintf(other, sizeof(other), "%s.new", path);
    new = strrchr(other, '/') + 1;
    if (IS("rename") || IS("link"))
        return CALL(int, (const char *, const char *))(path, other);
    if (IS("renameat"))
        return renameat(dir, last, dir, new);
    if (IS("renameat2"))
        return renameat2(dir, last, dir, new, 0);
    if (IS("linkat"))
        return linkat(dir, last, dir, new, 0);
    if (IS("unlinkat"))
        return unlinkat(dir, last, 0);
    return CALL(int, (const char *))(path); /* unlink, remove, rmdir */
}

/* Where the Shim does not see it: the contents before the call, and after it. */
static int silently(long number, const char *path)
{
    if (number == SYS_umount2)
        return (int)syscall(number, path, MNT_DETACH);
    return (int)syscall(number, "none", path, "tmpfs", 0, NULL);
}

static int mount_by_name(const char *path)
{
    int rc;
    if (ENDS("umount") || IS("umount2")) {
        rc = silently(SYS_mount, path);
        return rc ? rc : IS("umount") ? umount(path) : umount2(path, 0);
    }
    if (IS("mount"))
        rc = mount("none", path, "tmpfs", 0, NULL);
    else
        rc = CALL(int, (int, const char *, int, const char *, unsigned))(
            (int)syscall(SYS_open_tree, AT_FDCWD, path, 1 /* OPEN_TREE_CLONE */), "",
            AT_FDCWD, path, 4 /* MOVE_MOUNT_F_EMPTY_PATH */);
    return rc ? rc : silently(SYS_umount2, path);
}

static int copy_by_name(const char *path)
{
    char text[6] = "";
    off64_t from = 1;
    FILE *out = tmpfile();
    int in = open(path, O_RDONLY);
    ssize_t first = copy_file_range(in, NULL, fileno(out), NULL, 2, 0);
    ssize_t second = copy_file_range(in, &from, fileno(out), NULL, 3, 0);
    if (pread(fileno(out), text, 5, 0) < 0)
        return -1;
    printf("%zd %zd %lld %lld %s ", first, second, (long long)from,
           (long long)lseek(in, 0, SEEK_CUR), text);
    return 0;
}

static int change_by_name(const char *path)
{
    if (ENDS("xattr"))
        return xattr_by_name(path);
    if (strstr(name, "utime"))
        return times_by_name(path);
    if (strstr(name, "chmod") || strstr(name, "chown") || STARTS("truncate"))
        return rights_by_name(path);
    if (STARTS("mk") || STARTS("symlink") || STARTS("__xmk"))
        return create_by_name(path);
    if (ENDS("mount") || IS("umount2")) /* move_mount too */
        return mount_by_name(path);
    if (IS("copy_file_range"))
        return copy_by_name(path);
    return name_by_name(path);
}

static int spawn_by_name(const char *self)
{
    char *const argv[] = {"probe", "show", NULL}, *const none[] = {NULL};
    pid_t pid;
    int status, error = CALL(int, (pid_t *, const char *, const void *, const void *,
                                   char *const[], char *const[]))(&pid, self, NULL,
                                                                  NULL, argv, none);
    errno = error;
    return error || waitpid(pid, &status, 0) != pid ? -1 : 0;
}

static int exec_by_name(const char *self)
{
    char *const argv[] = {"probe", "show", NULL}, *const none[] = {NULL};
    if (STARTS("posix_spawn"))
        return spawn_by_name(self);
    if (IS("fexecve"))
        return fexecve(open(self, O_RDONLY), argv, none);
    if (IS("execveat"))
        return CALL(int, (int, const char *, char *const[], char *const[], int))(
            AT_FDCWD, self, argv, none, 0);
    if (IS("execle"))
        return execle(self, "probe", "show", NULL, none);
    if (ENDS("e"))
        return CALL(int, (const char *, char *const[], char *const[]))(self, argv,
                                                                       none);
    clearenv();
    if (STARTS("execl"))
        return CALL(int, (const char *, const char *, ...))(self, "probe", "show",
                                                            NULL);
    return CALL(int, (const char *, char *const[]))(self, argv);
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, sets) < 0)
        return -1;
    sets[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    return CALL(int, (void *, const void *))(&header, sets);
}

static int leave_by_name(void)
{
    const gid_t group = 12;
    if (IS("capset"))
        return drop_capabilities();
    if (IS("setgroups"))
        return setgroups(1, &group);
    if (IS("initgroups"))
        return initgroups("daemon", group);
    if (IS("chroot"))
        return chroot("/");
    if (IS("pivot_root"))
        return CALL(int, (const char *, const char *))("/", "/nowhere");
    if (IS("unshare"))
        return unshare(CLONE_NEWNS);
    if (IS("setns"))
        return setns(open("/proc/self/ns/mnt", O_RDONLY), CLONE_NEWNS);
    if (strstr(name, "res"))
        return CALL(int, (unsigned, unsigned, unsigned))(12, 12, 0);
    if (strstr(name, "re"))
        return CALL(int, (unsigned, unsigned))(0, 12);
    return CALL(int, (unsigned))(12);
}

static int result(int rc)
{
    printf("%d\n", rc < 0 ? -errno : rc);
    return 0;
}

int main(int argc, char **argv)
{
    const char *preload = getenv("LD_PRELOAD");
    if (argc == 2 && strcmp(argv[1], "show") == 0) {
        puts(preload ? preload : "-");
        return 0;
    }
    if (argc != 4)
        return 2;
    name = argv[2];
    if (strcmp(argv[1], "open") == 0)
        show_descriptor(open_by_name(argv[3]));
    else if (strcmp(argv[1], "stat") == 0)
        stat_by_name(argv[3]);
    else if (strcmp(argv[1], "access") == 0)
        return result(access_by_name(argv[3]));
    else if (strcmp(argv[1], "change") == 0)
        return result(change_by_name(argv[3]));
    else if (strcmp(argv[1], "exec") == 0 && exec_by_name(argv[3]))
        err(1, "%s", name);
    else if (strcmp(argv[1], "leave") == 0) {
        printf("%d ", leave_by_name());
        show_descriptor(open(argv[3], O_RDONLY));
    }
    return 0;
}
