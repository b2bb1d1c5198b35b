/* faults.c - reads with bad arguments, and those whose results file systems may choose. */
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "play.h"

enum { TORN_BYTES = 64 << 10, PAGE = 4096, TORN_READ = 3 * BLOCK, KERNEL = 4096 };

/* right_part - whether a result is possible: bytes of the model, at most n of them. */
static void right_part(int fd, const char *bytes, ssize_t count, off_t at)
{
    const struct file *file = &files[slots[fd].file];
    ssize_t wrong = wrong_word(bytes, (size_t)count, at, model_of(file));
    if (wrong < 0 && (count == 0 || at + count <= size_of(file)))
        say(" right");
    else
        say(" WRONG: %zd bytes at %lld, not at %zd", count, (long long)at, wrong);
}

static int some_exact(void)
{
    int fd = some_slot(FILE_READ);
    if (fd >= 0 && !is_stale(fd))
        return fd;
    say(" nothing");
    return -1;
}

/* read_at_once - a read that must not wait: bytes, or a refusal. */
static void read_at_once(int fd, off_t at, size_t n)
{
    struct iovec piece = {room, n};
    ssize_t count = preadv2(fd, &piece, 1, at, RWF_NOWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EOPNOTSUPP))
        say(" right");
    else if (count < 0)
        say(" WRONG: error %d", errno);
    else
        right_part(fd, room, count, at);
}

/* copy_out - copy_file_range into a file elsewhere: bytes, or the refusal of the kernel. */
static void copy_out(int fd, off_t at, size_t n)
{
    int into = memfd_create("copied", 0);
    off_t before = at;
    ssize_t count = copy_file_range(fd, &at, into, NULL, n, 0);
    if (count < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP))
        say(" right");
    else if (count < 0 || at != before + count)
        say(" WRONG: error %d, %zd, now at %lld", errno, count, (long long)at);
    else
        right_part(fd, room, pread(into, room, (size_t)count, 0), before);
    close(into);
}

/* op_free_to_differ - the lower file system decides; bytes must be the model's. */
void op_free_to_differ(void)
{
    int fd = some_exact();
    if (fd < 0)
        return;
    off_t size = size_of(&files[slots[fd].file]), at = some_place(size);
    size_t n = 1 + draw(BLOCK);
    if (at < 0 || at >= size)
        at = size / 2;
    int copying = (int)draw(2);
    say(" %d %s %lld %zu", fd, copying ? "copy" : "at once", (long long)at, n);
    (copying ? copy_out : read_at_once)(fd, at, n);
}

/* op_bad_buffer - none of it is writable: EFAULT, if the file has bytes there. */
void op_bad_buffer(void)
{
    int fd = some_exact();
    if (fd < 0)
        return;
    static char *closed;
    if (!closed)
        closed = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *const nowhere[] = {NULL, (char *)8, closed, (char *)-KERNEL};
    char *out = nowhere[draw(4)];
    off_t size = size_of(&files[slots[fd].file]);
    off_t at = (off_t)draw((uint64_t)size - PAGE);
    size_t n = 1 + draw(PAGE);
    struct iovec pieces[2] = {{room, 0}, {out, n}};
    int way = (int)draw(5);
    say(" %d way %d at %lld", fd, way, (long long)at);
    if (way < 3 && lseek(fd, at, SEEK_SET) != at)
        say(" WRONG: no seek");
    errno = UNTOUCHED;
    say_result(way == 0   ? read(fd, out, n)
               : way == 1 ? readv(fd, pieces, 2)
               : way == 2 ? readv(fd, (struct iovec *)out, 2)
               : way == 3 ? pread(fd, out, n, at)
                          : preadv(fd, pieces, 2, at));
    say(" at %lld", (long long)lseek(fd, 0, SEEK_CUR));
}

/* Not constants: a compiler would refuse the calls. */
static volatile int too_few = -1, too_many = IOV_MAX + 1;

static ssize_t call_badly(int way, int fd)
{
    struct iovec pieces[3] = {{room, 8}, {room, (size_t)-1}, {room, 8}};
    struct iovec piece = {room, 8};
    int closed = SLOTS + 9;
    switch (way) {
    case 0:
        return pread(fd, room, 8, -1 - (off_t)draw(BLOCK));
    case 1:
        return readv(fd, pieces, 3);
    case 2:
        return readv(fd, &piece, too_few);
    case 3:
        return readv(fd, &piece, too_many);
    case 4:
        return preadv(fd, &piece, 1, INT64_MIN);
    case 5:
        return preadv2(fd, &piece, 1, 0, 1 << 20);
    case 6:
        return read(closed, room, 8);
    case 7:
        return pread(closed, room, 8, 0);
    case 8:
        return readv(closed, &piece, 1);
    case 9:
        return read(-1, room, 8);
    case 10:
        return pread(fd, room, PAGE, INT64_MAX - 10);
    case 11:
        return pread(fd, room, PAGE, INT64_MAX - 2 * PAGE);
    case 12:
        return readv(fd, &piece, 0);
    case 13:
        return preadv2(closed, &piece, 1, -1, 0);
    default:
        return lseek(closed, 0, SEEK_SET);
    }
}

/* op_bad_call - arguments that a kernel refuses, each in its way. */
void op_bad_call(void)
{
    int fd = some_exact();
    if (fd < 0)
        return;
    int way = (int)draw(15);
    say(" %d way %d", fd, way);
    off_t before = lseek(fd, 0, SEEK_CUR);
    errno = UNTOUCHED;
    say_result(call_badly(way, fd));
    if (lseek(fd, 0, SEEK_CUR) != before)
        say(" WRONG: the offset has moved");
}

/* torn_room - a piece of memory with nothing mapped behind it. */
static char *torn_room(void)
{
    static char *torn;
    if (!torn) {
        torn = mmap(NULL, TORN_BYTES + TORN_READ, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(torn, TORN_BYTES, PROT_READ | PROT_WRITE);
    }
    return torn + TORN_BYTES;
}

/* op_torn_buffer - only its first bytes are writable. The bytes read are right, and the
 * offset moves by as much; or nothing is read, and it stays. */
void op_torn_buffer(void)
{
    int fd = some_exact();
    if (fd < 0)
        return;
    size_t fits = 1 + draw(draw(2) ? TORN_BYTES : 100);
    size_t n = fits + 1 + draw(TORN_READ - TORN_BYTES);
    off_t size = size_of(&files[slots[fd].file]);
    off_t at = (off_t)draw((uint64_t)(size - TORN_READ));
    char *out = torn_room() - fits;
    int placed = (int)draw(2);
    say(" %d %zu of %zu at %lld", fd, fits, n, (long long)at);
    if (lseek(fd, at, SEEK_SET) != at)
        say(" WRONG: no seek");
    ssize_t count = placed ? pread(fd, out, n, at) : read(fd, out, n);
    off_t after = lseek(fd, 0, SEEK_CUR);
    if (count < 0 ? errno != EFAULT : count > (ssize_t)fits)
        say(" WRONG: %zd, error %d", count, errno);
    else
        right_part(fd, out, count < 0 ? 0 : count, at);
    if (after != at + (placed || count < 0 ? 0 : count))
        say(" WRONG: at %lld after %zd", (long long)after, count);
    lseek(fd, at, SEEK_SET);
}
