/* countfs.c - a read-only passthrough FUSE that counts, slows and breaks what it serves.
 *
 *     countfs SOURCE MOUNTPOINT [KEY=VALUE ...]
 *
 * returns once it is mounted. MOUNTPOINT/.counts reads as lines "name value", exact
 * because neither data nor attributes are cached by the kernel unless keep_ms is set;
 * lines "KEY=VALUE" written to MOUNTPOINT/.control change a setting, "reset=1" zeroes the
 * counts. Neither is listed.
 *
 *     bw         bytes per second over all readers, 0 = unlimited
 *     open_us    delay of each open; read_us of each read; stat_us of each stat;
 *                most_reads counts the maximum of reads delayed at once
 *     op_us      time of each stat, open, read, listing and xattr at a server that runs
 *     parallel   so many of them at once, 0 = all
 *     thrash     more reads than this at once slow each other down: of twice as many
 *                each takes four times its read_us; 0 = they do not
 *     plus       1 = directories are read with the metadata of their names (READDIRPLUS)
 *     keep_ms    how long the kernel keeps names and metadata; only as an argument
 *     no_xattrs  1 = no extended attributes
 *     aged       1 = the ctime is reported as equal to the mtime
 *     cached     1 = the kernel may cache data (for shared mmap); each open drops it; 2 = it
 *                stays until then, however often the file is opened
 *     open_eio   opens of paths that contain this text fail with EIO
 *     read_eio   the same for reads
 *     stall      requests for paths that contain this text wait until it is changed
 */
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <ctype.h>
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
#include <sys/xattr.h>
#include <unistd.h>

#include "pace.h"

#define COUNTS_PATH "/.counts"
#define CONTROL_PATH "/.control"
/* Stalled requests hold a thread each, and the one that ends the stall needs one too. */
#if FUSE_VERSION >= 312
#define THREADS_OPTION ",max_threads=256"
#else
#define THREADS_OPTION ""
#endif
#define COMMON_OPTIONS "default_permissions,fsname=countfs" THREADS_OPTION

enum { TEXT_BYTES = 256, PATH_ROOM = 4096 + 64, STALL_CHECK_US = 20000 };

enum count { OPENS, READS, BYTES, STATS, LISTS, XATTRS, FAILED, MOST, LINKS, COUNTS };
static const char *const count_names[COUNTS] = {"opens",    "reads",      "read_bytes",
                                                "stats",    "listings",   "xattrs",
                                                "failures", "most_reads", "readlinks"};

enum number {
    BW,
    OPEN_US,
    READ_US,
    STAT_US,
    OP_US,
    PARALLEL,
    THRASH,
    CACHED,
    NO_LINKS,
    WRITABLE,
    FOLD,
    PLUS,
    AGED,
    KEEP_MS,
    NO_XATTRS,
    NUMBERS
};
static const char *const number_names[NUMBERS] = {
    "bw",       "open_us", "read_us", "stat_us",  "op_us",
    "parallel", "thrash",  "cached",  "no_links", "writable",
    "fold",     "plus",    "aged",    "keep_ms",  "no_xattrs"};

enum text { OPEN_EIO, READ_EIO, STALL, TEXTS };
static const char *const text_names[TEXTS] = {"open_eio", "read_eio", "stall"};

static atomic_ullong counts[COUNTS];
static atomic_ullong numbers[NUMBERS];
static char texts[TEXTS][TEXT_BYTES];
static pthread_mutex_t texts_lock = PTHREAD_MUTEX_INITIALIZER;
static int source_fd = -1;

struct open_file {
    int fd; /* -1: .counts or .control */
    char path[];
};

static int matches(enum text setting, const char *path)
{
    pthread_mutex_lock(&texts_lock);
    int found = texts[setting][0] && strstr(path, texts[setting]);
    pthread_mutex_unlock(&texts_lock);
    return found;
}

/* stall - waits while the path is stalled; -EINTR if the caller has been killed. */
static int stall(const char *path)
{
    while (matches(STALL, path)) {
        if (fuse_interrupted())
            return -EINTR;
        pace_delay(STALL_CHECK_US);
    }
    return 0;
}

static int fail(enum text setting, const char *path)
{
    if (!matches(setting, path))
        return 0;
    counts[FAILED]++;
    return -EIO;
}

static int set_text(enum text setting, const char *value)
{
    if (strlen(value) >= TEXT_BYTES)
        return -ENAMETOOLONG;
    pthread_mutex_lock(&texts_lock);
    strcpy(texts[setting], value);
    pthread_mutex_unlock(&texts_lock);
    return 0;
}

/* set - applies one KEY=VALUE; -EINVAL for an unknown key. Writes into its argument. */
static int set(char *line)
{
    char *value = strchr(line, '=');
    if (!value)
        return -EINVAL;
    *value++ = 0;
    if (strcmp(line, "reset") == 0) {
        for (int i = 0; i < COUNTS; i++)
            counts[i] = 0;
        return 0;
    }
    for (int i = 0; i < NUMBERS; i++) {
        if (strcmp(line, number_names[i]) == 0) {
            numbers[i] = strtoull(value, NULL, 10);
            return 0;
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        if (strcmp(line, text_names[i]) == 0)
            return set_text(i, value);
    }
    return -EINVAL;
}

/* below - a path relative to the source's root; in lower case if case is ignored. */
static const char *below(const char *path)
{
    static _Thread_local char folded[PATH_ROOM];
    size_t n = strlen(path);
    if (!numbers[FOLD] || n >= sizeof(folded))
        return path[1] ? path + 1 : ".";
    for (size_t i = 0; i <= n; i++)
        folded[i] = (char)tolower((unsigned char)path[i]);
    return folded[1] ? folded + 1 : ".";
}

static int is_own(const char *path)
{
    return strcmp(path, COUNTS_PATH) == 0 || strcmp(path, CONTROL_PATH) == 0;
}

static int own_getattr(struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_mode = S_IFREG | 0600;
    st->st_nlink = 1;
    st->st_uid = getuid();
    st->st_gid = getgid();
    return 0;
}

static int source_stat(int folder, const char *name, struct stat *st)
{
    if (fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    if (numbers[NO_LINKS])
        st->st_nlink = 1;
    if (numbers[AGED])
        st->st_ctim = st->st_mtim;
    return 0;
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    if (is_own(path))
        return own_getattr(st);
    counts[STATS]++;
    pace_operation(numbers[OP_US], numbers[PARALLEL]);
    pace_delay(numbers[STAT_US]);
    int error = stall(path);
    if (error)
        return error;
    return source_stat(source_fd, below(path), st);
}

static int fs_readlink(const char *path, char *out, size_t size)
{
    ssize_t n = readlinkat(source_fd, below(path), out, size - 1);
    if (n < 0)
        return -errno;
    counts[LINKS]++;
    out[n] = 0;
    return 0;
}

static int open_source(const char *path, int flags)
{
    int mode = flags & O_ACCMODE;
    if (mode != O_RDONLY && !numbers[WRITABLE])
        return -EROFS;
    counts[OPENS]++;
    pace_operation(numbers[OP_US], numbers[PARALLEL]);
    pace_delay(numbers[OPEN_US]);
    int error = stall(path);
    if (!error)
        error = fail(OPEN_EIO, path);
    if (error)
        return error;
    int fd = openat(source_fd, below(path), mode | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
    int fd = is_own(path) ? -1 : open_source(path, fi->flags);
    if (fd < -1 || (fd < 0 && !is_own(path)))
        return fd;
    struct open_file *file = malloc(sizeof(*file) + strlen(path) + 1);
    if (!file) {
        if (fd >= 0)
            close(fd);
        return -ENOMEM;
    }
    file->fd = fd;
    strcpy(file->path, path);
    fi->fh = (uint64_t)(uintptr_t)file;
    fi->direct_io = fd < 0 || !numbers[CACHED];
    fi->keep_cache = numbers[CACHED] > 1;
    return 0;
}

static int read_counts(char *out, size_t size, off_t offset)
{
    char text[1024];
    int n = 0;
    for (int i = 0; i < COUNTS; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s %llu\n", count_names[i],
                      counts[i]);
    if (offset >= n)
        return 0;
    size_t left = (size_t)(n - offset);
    memcpy(out, text + offset, left < size ? left : size);
    return (int)(left < size ? left : size);
}

static int fs_read(const char *path, char *out, size_t size, off_t offset,
                   struct fuse_file_info *fi)
{
    (void)path;
    struct open_file *file = (struct open_file *)(uintptr_t)fi->fh;
    if (file->fd < 0)
        return read_counts(out, size, offset);
    counts[READS]++;
    pace_operation(numbers[OP_US], numbers[PARALLEL]);
    pace_read(numbers[READ_US], numbers[THRASH], &counts[MOST]);
    int error = stall(file->path);
    if (!error)
        error = fail(READ_EIO, file->path);
    if (error)
        return error;
    ssize_t n = pread(file->fd, out, size, offset);
    if (n < 0)
        return -errno;
    counts[BYTES] += (uint64_t)n;
    pace_bytes((uint64_t)n, numbers[BW]);
    return (int)n;
}

static int fs_write(const char *path, const char *bytes, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    char line[TEXT_BYTES * 2];
    if (strcmp(path, CONTROL_PATH) != 0) {
        struct open_file *file = (struct open_file *)(uintptr_t)fi->fh;
        ssize_t n = pwrite(file->fd, bytes, size, offset);
        return n < 0 ? -errno : (int)n;
    }
    if (size >= sizeof(line))
        return -EINVAL;
    memcpy(line, bytes, size);
    line[size] = 0;
    line[strcspn(line, "\n")] = 0;
    int error = set(line);
    return error ? error : (int)size;
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    struct open_file *file = fi ? (struct open_file *)(uintptr_t)fi->fh : NULL;
    if (is_own(path))
        return 0;
    if (!numbers[WRITABLE])
        return -EROFS;
    int fd = file ? file->fd : openat(source_fd, below(path), O_WRONLY | O_CLOEXEC);
    int error = fd >= 0 && ftruncate(fd, size) == 0 ? 0 : -errno;
    if (!file && fd >= 0)
        close(fd);
    return error;
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    struct open_file *file = (struct open_file *)(uintptr_t)fi->fh;
    if (file->fd >= 0)
        close(file->fd);
    free(file);
    return 0;
}

/* list_plus - from an offset on until the buffer is full; libfuse passes metadata on only
 * from an implementation that uses offsets. */
static void list_plus(DIR *dir, void *out, fuse_fill_dir_t fill, off_t offset)
{
    if (offset)
        seekdir(dir, offset);
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        int error = source_stat(dirfd(dir), entry->d_name, &st);
        if (!error && fill(out, entry->d_name, &st, telldir(dir), FUSE_FILL_DIR_PLUS))
            return;
    }
}

static int fs_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)fi;
    (void)flags;
    counts[LISTS] += !offset;
    pace_operation(numbers[OP_US], numbers[PARALLEL]);
    int fd = openat(source_fd, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    if (numbers[PLUS])
        list_plus(dir, out, fill, offset);
    for (struct dirent *entry; !numbers[PLUS] && (entry = readdir(dir));) {
        struct stat st = {.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)};
        fill(out, entry->d_name, &st, 0, 0);
    }
    closedir(dir);
    return 0;
}

static int source_path(const char *path, char out[PATH_ROOM])
{
    int n = snprintf(out, PATH_ROOM, "/proc/self/fd/%d/%s", source_fd, below(path));
    return n < PATH_ROOM ? 0 : -ENAMETOOLONG;
}

/* ask_xattrs - counts the request; -ENOSYS: the kernel does not send it again. */
static int ask_xattrs(void)
{
    counts[XATTRS]++;
    pace_operation(numbers[OP_US], numbers[PARALLEL]);
    return numbers[NO_XATTRS] ? -ENOSYS : 0;
}

static int fs_getxattr(const char *path, const char *name, char *value, size_t size)
{
    char source[PATH_ROOM];
    int error = ask_xattrs();
    if (!error)
        error = source_path(path, source);
    if (error)
        return error;
    ssize_t n = lgetxattr(source, name, value, size);
    return n < 0 ? -errno : (int)n;
}

static int fs_listxattr(const char *path, char *names, size_t size)
{
    char source[PATH_ROOM];
    int error = ask_xattrs();
    if (!error)
        error = source_path(path, source);
    if (error)
        return error;
    ssize_t n = llistxattr(source, names, size);
    return n < 0 ? -errno : (int)n;
}

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = !numbers[NO_LINKS];
    config->entry_timeout = config->attr_timeout = (double)numbers[KEEP_MS] / 1000;
    config->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = fs_init,
    .getattr = fs_getattr,
    .readlink = fs_readlink,
    .open = fs_open,
    .read = fs_read,
    .write = fs_write,
    .truncate = fs_truncate,
    .release = fs_release,
    .readdir = fs_readdir,
    .getxattr = fs_getxattr,
    .listxattr = fs_listxattr,
};

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: countfs SOURCE MOUNTPOINT [KEY=VALUE ...]\n");
        return 2;
    }
    source_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (source_fd < 0) {
        perror(argv[1]);
        return 1;
    }
    for (int i = 3; i < argc; i++) {
        if (set(argv[i])) {
            fprintf(stderr, "countfs: bad setting %s\n", argv[i]);
            return 2;
        }
    }
    char mine[] = COMMON_OPTIONS;
    char everyones[] = COMMON_OPTIONS ",allow_other";
    char *fuse_argv[] = {argv[0], argv[2], "-o", geteuid() ? mine : everyones, NULL};
    return fuse_main(4, fuse_argv, &operations, NULL);
}
