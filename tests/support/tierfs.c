/* tierfs.c - a passthrough FUSE for a Tier, which is slow, fails or hangs on command.
 *
 *     tierfs SOURCE MOUNTPOINT [KEY=VALUE ...]
 *
 * returns once it is mounted. Lines "KEY=VALUE" written to MOUNTPOINT/.control change
 * a setting; MOUNTPOINT/.counts shows the number of bytes read. Neither is listed.
 *
 *     eio        0 = well; 1 = reads of data fail with EIO; 2 = opens too; 3 = all
 *     stall      not empty: all requests wait until it is empty
 *     bw         bytes per second over all readers, 0 = unlimited
 *     burst_us   credit for so many microseconds without reads
 *     wbw        the same over all writers
 *     write      errno with which writes of data fail, 0 = well
 */
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#if FUSE_VERSION >= 312
#define OPTIONS "default_permissions,fsname=tierfs,max_threads=256"
#else
#define OPTIONS "default_permissions,fsname=tierfs"
#endif

enum { NO_FILE = 0, READS = 1, OPENS = 2, ALL = 3, LINE_BYTES = 256 };
enum { SECOND_NS = 1000000000, US_NS = 1000, BURST_US = 2000 };

static atomic_int eio, stalled, bytes_per_s, burst_us = BURST_US;
static atomic_int written_per_s, write_error;
static atomic_ullong read_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t given_ns; /* when the medium has delivered all requested bytes */
static int source_fd = -1;

static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int is_own(const char *path)
{
    return strcmp(path, "/.control") == 0 || strcmp(path, "/.counts") == 0;
}

/* enter - the first action of each request. */
static int enter(int fails_from)
{
    const struct timespec step = {.tv_nsec = 20000000};
    while (stalled) {
        if (fuse_interrupted())
            return -EINTR;
        nanosleep(&step, NULL);
    }
    return eio >= fails_from ? -EIO : 0;
}

/* pace - waits until a medium of this bandwidth has delivered so many more bytes. */
static void pace(ssize_t n, int rate)
{
    struct timespec now;
    if (!rate)
        return;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t earliest = now.tv_sec * (int64_t)SECOND_NS + now.tv_nsec;
    earliest -= (int64_t)burst_us * US_NS;
    given_ns = given_ns < earliest ? earliest : given_ns;
    given_ns += n * (int64_t)SECOND_NS / rate;
    const struct timespec until = {given_ns / SECOND_NS, given_ns % SECOND_NS};
    pthread_mutex_unlock(&lock);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static int answer(int result)
{
    return result < 0 ? -errno : 0;
}

static int set(const char *line)
{
    if (strncmp(line, "eio=", 4) == 0)
        eio = atoi(line + 4);
    else if (strncmp(line, "stall=", 6) == 0)
        stalled = line[6] && line[6] != '\n';
    else if (strncmp(line, "bw=", 3) == 0)
        bytes_per_s = atoi(line + 3);
    else if (strncmp(line, "burst_us=", 9) == 0)
        burst_us = atoi(line + 9);
    else if (strncmp(line, "wbw=", 4) == 0)
        written_per_s = atoi(line + 4);
    else if (strncmp(line, "write=", 6) == 0)
        write_error = atoi(line + 6);
    else
        return -EINVAL;
    return 0;
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    if (is_own(path)) {
        *st = (struct stat){
            .st_mode = S_IFREG | 0600, .st_nlink = 1, .st_uid = getuid()};
        return 0;
    }
    int error = enter(ALL);
    if (error)
        return error;
    return answer(fstatat(source_fd, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int keep(int fd, struct fuse_file_info *fi)
{
    if (fd < 0)
        return -errno;
    fi->fh = (uint64_t)fd;
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
    fi->direct_io = 1;
    fi->fh = NO_FILE;
    if (is_own(path))
        return 0;
    int error = enter(OPENS);
    int flags = fi->flags & ~O_DIRECT;
    return error ? error : keep(openat(source_fd, below(path), flags), fi);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    fi->direct_io = 1;
    int error = enter(OPENS);
    int flags = (fi->flags & ~O_DIRECT) | O_CREAT;
    return error ? error : keep(openat(source_fd, below(path), flags, mode), fi);
}

/* tell_counts - the contents of .counts. */
static int tell_counts(char *out, size_t size, off_t offset)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof(line), "read_bytes %llu\n", read_bytes) - (int)offset;
    if (n <= 0)
        return 0;
    n = (size_t)n < size ? n : (int)size;
    memcpy(out, line + offset, (size_t)n);
    return n;
}

static int fs_read(const char *path, char *out, size_t size, off_t offset,
                   struct fuse_file_info *fi)
{
    if (is_own(path))
        return tell_counts(out, size, offset);
    int error = enter(READS);
    if (error)
        return error;
    ssize_t n = pread((int)fi->fh, out, size, offset);
    if (n < 0)
        return -errno;
    read_bytes += (unsigned long long)n;
    pace(n, bytes_per_s);
    return (int)n;
}

static int fs_write(const char *path, const char *bytes, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    char line[LINE_BYTES] = "";
    if (is_own(path)) {
        memcpy(line, bytes, size < sizeof(line) ? size : sizeof(line) - 1);
        line[strcspn(line, "\n")] = 0;
        int wrong = set(line);
        return wrong ? wrong : (int)size;
    }
    int error = enter(ALL);
    if (error || write_error)
        return error ? error : -write_error;
    pace((ssize_t)size, written_per_s);
    ssize_t n = pwrite((int)fi->fh, bytes, size, offset);
    return n < 0 ? -errno : (int)n;
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    if (fi->fh != NO_FILE)
        close((int)fi->fh);
    return 0;
}

static int fs_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)offset, (void)fi, (void)flags;
    int error = enter(ALL);
    if (error)
        return error;
    int fd = openat(source_fd, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    for (struct dirent *entry; (entry = readdir(dir));)
        fill(out, entry->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int fs_unlink(const char *path)
{
    int error = enter(ALL);
    return error ? error : answer(unlinkat(source_fd, below(path), 0));
}

static int fs_rmdir(const char *path)
{
    int error = enter(ALL);
    return error ? error : answer(unlinkat(source_fd, below(path), AT_REMOVEDIR));
}

static int fs_mkdir(const char *path, mode_t mode)
{
    int error = enter(ALL);
    return error ? error : answer(mkdirat(source_fd, below(path), mode));
}

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    int error = enter(ALL);
    if (error)
        return error;
    return answer(renameat2(source_fd, below(from), source_fd, below(to), flags));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    (void)size;
    if (is_own(path) || !fi)
        return 0;
    return answer(ftruncate((int)fi->fh, size));
}

static int fs_fallocate(const char *path, int mode, off_t offset, off_t size,
                        struct fuse_file_info *fi)
{
    (void)path;
    int error = enter(ALL);
    return error ? error : answer(fallocate((int)fi->fh, mode, offset, size));
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    (void)fi;
    int error = enter(ALL);
    return error ? error : answer(fchmodat(source_fd, below(path), mode, 0));
}

static int fs_utimens(const char *path, const struct timespec times[2],
                      struct fuse_file_info *fi)
{
    (void)fi;
    return answer(utimensat(source_fd, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int fs_statfs(const char *path, struct statvfs *out)
{
    (void)path;
    int error = enter(ALL);
    return error ? error : answer(fstatvfs(source_fd, out));
}

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = 1;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = fs_init,
    .getattr = fs_getattr,
    .open = fs_open,
    .create = fs_create,
    .read = fs_read,
    .write = fs_write,
    .release = fs_release,
    .readdir = fs_readdir,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .mkdir = fs_mkdir,
    .rename = fs_rename,
    .truncate = fs_truncate,
    .fallocate = fs_fallocate,
    .chmod = fs_chmod,
    .utimens = fs_utimens,
    .statfs = fs_statfs,
};

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: tierfs SOURCE MOUNTPOINT [KEY=VALUE ...]\n");
        return 2;
    }
    source_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (source_fd < 0) {
        perror(argv[1]);
        return 1;
    }
    for (int i = 3; i < argc; i++)
        if (set(argv[i]))
            return 2;
    umask(0);
    char options[] = OPTIONS;
    char *fuse_argv[] = {argv[0], argv[2], "-o", options, NULL};
    return fuse_main(4, fuse_argv, &operations, NULL);
}
