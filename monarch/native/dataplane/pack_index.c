/* pack_index.c - writes the index of a segment, and reads it: whatever stands in the file,
 * an index that is accepted names no byte outside of the frames, and none twice. */
#include "dataplane/pack_index.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/syscalls.h"
#include "shared/xxh3.h"

static uint64_t digest_of(const struct pack_tail *tail,
                          const struct monarch_pack_entry *entries)
{
    const uint64_t said[] = {tail->count, tail->version};
    uint64_t seed = xxh3(said, sizeof(said), 0);
    return tail->count ? xxh3(entries, tail->count * sizeof(*entries), seed) : seed;
}

/* pack_index_write - puts the index behind the frames, which end at `at`; what else stands
 * there goes. */
int pack_index_write(int fd, uint64_t at, const struct monarch_pack_entry *entries,
                     uint64_t count)
{
    struct pack_tail tail = {
        .count = count, .version = PACK_VERSION, .magic = PACK_MAGIC};
    size_t n = count * sizeof(*entries);
    tail.digest = digest_of(&tail, entries);
    if (ftruncate(fd, (off_t)at))
        return -errno;
    int rc = file_write_at(fd, entries, n, at);
    return rc ? rc : file_write_at(fd, &tail, sizeof(tail), at + n);
}

/* read_tail - the place of the entries, or -errno. */
static int64_t read_tail(int fd, struct pack_tail *tail)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    uint64_t size = (uint64_t)st.st_size, end = size - sizeof(*tail);
    if (!S_ISREG(st.st_mode) || size < sizeof(*tail))
        return -EBADMSG;
    if (pread(fd, tail, sizeof(*tail), (off_t)end) != (ssize_t)sizeof(*tail))
        return -EBADMSG;
    if (tail->magic != PACK_MAGIC || tail->version != PACK_VERSION ||
        tail->count > end / sizeof(struct monarch_pack_entry))
        return -EBADMSG;
    return (int64_t)(end - tail->count * sizeof(struct monarch_pack_entry));
}

/* is_plausible - the size of a frame is one that its File can have. */
static bool is_plausible(const struct monarch_pack_entry *one)
{
    if (one->plain == 0 || one->plain > EXTENT_BYTES)
        return false;
    size_t least = frame_least_bytes(one->plain);
    return one->bytes > least && one->bytes <= least + one->plain;
}

/* check - -EBADMSG unless all frames stand before `end`, one after the other. */
static int check(const struct monarch_pack_entry *entries, uint64_t count, uint64_t end)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        const struct monarch_pack_entry *one = &entries[i];
        if (!is_plausible(one) || one->offset < at ||
            (uint64_t)one->offset + one->bytes > end)
            return -EBADMSG;
        at = (uint64_t)one->offset + one->bytes;
    }
    return 0;
}

/* monarch_pack_index_read - the number of entries of a segment, which are copied to `out` if
 * at most `max` have room there. -EBADMSG: it has no index, or a damaged one, which is found
 * out if there is room. */
int64_t monarch_pack_index_read(int fd, struct monarch_pack_entry *out, uint64_t max)
{
    struct pack_tail tail;
    int64_t at = read_tail(fd, &tail);
    if (at < 0)
        return at;
    if (tail.count > max)
        return (int64_t)tail.count;
    size_t n = tail.count * sizeof(*out);
    if (n && file_read_at(fd, out, n, (uint64_t)at) != (ssize_t)n)
        return -EBADMSG;
    if (tail.digest != digest_of(&tail, out))
        return -EBADMSG;
    int rc = (uint64_t)at > PACK_BYTES_MAX ? -EBADMSG
                                           : check(out, tail.count, (uint64_t)at);
    return rc ? rc : (int64_t)tail.count;
}
