/* changes.c - another process changes a file: before, while and after it is read.
 *
 * A descriptor that was opened before the change may show the bytes and sizes of any
 * moment since; one that is opened after it shows the current ones. After a change that
 * nothing can have seen, all descriptors may show both, for the rest of the run.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "play.h"

enum { LEAST_BYTES = 2 << 20, PIECES = 8, LOOKS = 6, VERSIONS_MAX = 200 };

struct change {
    struct file *file;
    int is_unseen;
    off_t at; /* a place, or the new size */
    size_t n; /* 0: of the size */
};

static int open_to_write(const struct change *change)
{
    const char *path = change->file->path;
    if (change->is_unseen)
        return (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY);
    return open(path, O_WRONLY);
}

static int resize(const struct change *change)
{
    int fd = change->is_unseen ? open_to_write(change) : -1;
    if (!change->is_unseen)
        return truncate(change->file->path, change->at);
    int result = (int)syscall(SYS_ftruncate, fd, change->at);
    close(fd);
    return result;
}

/* overwrite - with the next version's bytes, in pieces. */
static int overwrite(const struct change *change)
{
    static char bytes[4 * BLOCK];
    struct word of = {change->file->number, change->file->version, 0};
    int fd = open_to_write(change);
    size_t piece = (change->n / PIECES + WORD) / WORD * WORD;
    for (size_t done = 0; done < change->n; done += piece) {
        size_t n = change->n - done < piece ? change->n - done : piece;
        off_t at = change->at + (off_t)done;
        fill_words(bytes, n, at, of);
        if (syscall(SYS_pwrite64, fd, bytes, n, at) != (ssize_t)n)
            return -1;
    }
    return close(fd);
}

/* begin - lets a child change a file; statements about it hold from now on. */
static pid_t begin(struct change *change)
{
    struct file *file = change->file;
    if (change->n)
        file->version++;
    file->sizes[file->sizes_count] = change->n ? size_of(file) : change->at;
    file->sizes_count++;
    file->changes++;
    file->doubtful |= change->is_unseen;
    pid_t child = fork();
    if (child == 0)
        _exit((change->n ? overwrite : resize)(change) ? errno : 0);
    return child;
}

static void end(pid_t child)
{
    int status = wait_for(child);
    if (status)
        say(" WRONG: the change has failed, %d", status >> 8);
}

static int draw_change(struct change *change)
{
    struct file *file = &files[some_file(1)];
    off_t size = size_of(file);
    *change = (struct change){.file = file, .is_unseen = draw(6) == 0};
    if (file->sizes_count == SIZES_MAX || file->version == VERSIONS_MAX) {
        say(" enough of f%02d", file->number - 1);
        return -1;
    }
    uint64_t words = (uint64_t)(size / WORD);
    change->at = (off_t)(LEAST_BYTES / WORD + draw(words)) * WORD;
    if (draw(3)) {
        change->n = (1 + draw(4 * BLOCK / WORD)) * WORD;
        change->at = (off_t)draw(words - change->n / WORD) * WORD;
    }
    say(" f%02d %s %zu at %lld", file->number - 1,
        change->is_unseen ? "unseen" : "seen", change->n, (long long)change->at);
    return 0;
}

/* op_change - a change that ends before the sequence continues. */
void op_change(void)
{
    struct change change;
    if (draw_change(&change) == 0)
        end(begin(&change));
}

static int was_end(const struct file *file, off_t end_of_read, ssize_t count)
{
    for (unsigned i = 0; i < file->sizes_count; i++)
        if (file->sizes[i] == end_of_read ||
            (count == 0 && file->sizes[i] < end_of_read))
            return 1;
    return 0;
}

/* is_right - bytes of a read are those of a version; else prints the wrong ones. */
static int is_right(const struct file *file, ssize_t count, off_t at)
{
    ssize_t wrong = count < 0 ? count
                              : wrong_word(room, (size_t)count, at, model_of(file));
    if (count >= 0 && wrong < 0)
        return 1;
    say(" WRONG: %zd, error %d", count, errno);
    if (count < 0)
        return 0;
    struct word told = told_by(load_word(room + wrong));
    say(", at %zd the word %016llx (file %u, version %u of %u, place %llu)", wrong,
        (unsigned long long)load_word(room + wrong), told.file - 1, told.version,
        file->version, (unsigned long long)told.place * WORD);
    return 0;
}

/* may_be - whether a read of a changing file may return this. */
static int may_be(const struct file *file, size_t n, off_t at, ssize_t count)
{
    if (count < 0 || wrong_word(room, (size_t)count, at, model_of(file)) >= 0)
        return 0;
    return (size_t)count == n || was_end(file, at + count, count);
}

/* judge_stale - one read of a descriptor that may show the earlier contents. */
void judge_stale(int fd)
{
    const struct file *file = &files[slots[fd].file];
    off_t before = lseek(fd, 0, SEEK_CUR), at = some_place(size_of(file));
    size_t n = some_size();
    int placed = (int)draw(2);
    at = at < 0 ? 0 : at;
    say(" %d stale %zu %lld", fd, n, (long long)at);
    if (!placed)
        lseek(fd, at, SEEK_SET);
    ssize_t count = placed ? pread(fd, room, n, at) : read(fd, room, n);
    off_t after = lseek(fd, 0, SEEK_CUR);
    if (!may_be(file, n, at, count))
        say(" WRONG: %zd, error %d", count, errno);
    else if (after != (placed ? before : at + count))
        say(" WRONG: at %lld after %zd", (long long)after, count);
    else
        say(" right");
    lseek(fd, before, SEEK_SET);
}

/* op_change_during - a file is changed while it is read at the same place. */
void op_change_during(void)
{
    struct change change;
    if (draw_change(&change))
        return;
    int fd = open(change.file->path, O_RDONLY);
    pid_t child = begin(&change);
    size_t n = change.n ? change.n : BLOCK;
    for (int i = 0; i < LOOKS; i++) {
        ssize_t count = pread(fd, room, n, change.at);
        /* However few: a read may meet the end as it moves. */
        is_right(change.file, count, change.at);
    }
    end(child);
    close(fd);
}
