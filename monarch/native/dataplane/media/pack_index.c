/* pack_index.c - writes and reads the index of a segment. Whatever the file contains, an accepted
 * index names no byte outside of the frames, and none twice. */
#include "dataplane/media/pack_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "shared/presence.h"
#include "shared/xxh3.h"

static uint64_t digest_of(const struct pack_tail *tail, const struct pack_list *list)
{
    const uint64_t said[] = {list->count, list->blocks, tail->version};
    uint64_t chain = xxh3(said, sizeof(said), 0);
    if (list->count)
        chain = xxh3(list->entries, list->count * sizeof(*list->entries), chain);
    if (list->blocks)
        chain = xxh3(list->digests, list->blocks * sizeof(*list->digests), chain);
    return chain;
}

/* pack_index_write - truncates the file at `at`, where the frames end, and writes the index
 * there. */
int pack_index_write(int fd, uint64_t at, const struct pack_list *list)
{
    struct pack_tail tail = {.count = list->count,
                             .blocks = (uint32_t)list->blocks,
                             .version = PACK_VERSION,
                             .magic = PACK_MAGIC};
    size_t n = list->count * sizeof(*list->entries);
    size_t m = list->blocks * sizeof(*list->digests);
    tail.digest = digest_of(&tail, list);
    if (ftruncate(fd, (off_t)at))
        return -errno;
    int rc = file_write_at(fd, list->entries, n, at);
    rc = rc || !m ? rc : file_write_at(fd, list->digests, m, at + n);
    return rc ? rc : file_write_at(fd, &tail, sizeof(tail), at + n + m);
}

/* read_tail - reads the tail; returns the offset of the entries, or -errno. */
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
        tail->blocks > end / sizeof(uint64_t))
        return -EBADMSG;
    end -= tail->blocks * sizeof(uint64_t);
    if (tail->count > end / sizeof(struct monarch_pack_entry))
        return -EBADMSG;
    return (int64_t)(end - tail->count * sizeof(struct monarch_pack_entry));
}

/* is_plausible - the size of a frame is possible for its File or Extent. */
static bool is_plausible(const struct monarch_pack_entry *one)
{
    if (one->plain == 0 || one->plain > EXTENT_BYTES)
        return false;
    if (one->blocks ? one->blocks != blocks_of(one->plain) : one->extent != 0)
        return false;
    size_t least = frame_least_bytes(one->plain);
    return one->bytes > least && one->bytes <= least + one->plain;
}

/* check - returns -EBADMSG unless all frames are before `end`, one after the other. */
static int check(const struct pack_list *list, uint64_t end)
{
    uint64_t at = 0, blocks = 0;
    for (uint64_t i = 0; i < list->count; i++) {
        const struct monarch_pack_entry *one = &list->entries[i];
        if (!is_plausible(one) || one->offset < at ||
            (uint64_t)one->offset + one->bytes > end)
            return -EBADMSG;
        at = (uint64_t)one->offset + one->bytes;
        blocks += one->blocks;
    }
    return blocks == list->blocks && end <= PACK_BYTES_MAX ? 0 : -EBADMSG;
}

/* fill - reads the entries and checksums of an index; 0 if they are correct. */
static int fill(int fd, uint64_t at, const struct pack_tail *tail,
                struct pack_list *list)
{
    size_t n = list->count * sizeof(*list->entries);
    size_t m = list->blocks * sizeof(*list->digests);
    list->entries = malloc(n + 1);
    list->digests = malloc(m + 1);
    if (!list->entries || !list->digests)
        return -ENOMEM;
    if ((n && file_read_at(fd, list->entries, n, at) != (ssize_t)n) ||
        (m && file_read_at(fd, list->digests, m, at + n) != (ssize_t)m))
        return -EBADMSG;
    return tail->digest == digest_of(tail, list) ? check(list, at) : -EBADMSG;
}

/* pack_index_load - reads the index of a segment; after 0 the caller calls pack_list_free().
 * -EBADMSG: the segment has no index, or a damaged one. */
int pack_index_load(int fd, struct pack_list *out)
{
    struct pack_tail tail;
    int64_t at = read_tail(fd, &tail);
    if (at < 0)
        return (int)at;
    *out = (struct pack_list){.count = tail.count, .blocks = tail.blocks};
    int rc = fill(fd, (uint64_t)at, &tail, out);
    if (rc)
        pack_list_free(out);
    return rc;
}

/* pack_list_free - frees the contents of an index. */
void pack_list_free(struct pack_list *list)
{
    free(list->entries);
    free(list->digests);
    *list = (struct pack_list){0};
}

/* monarch_pack_index_read - returns the number of entries of a segment and copies them to `out`,
 * unless there are more than `max`. -EBADMSG: no index, or a damaged one; damage to the entries is
 * detected only if they fit. */
int64_t monarch_pack_index_read(int fd, struct monarch_pack_entry *out, uint64_t max)
{
    struct pack_tail tail;
    struct pack_list list;
    int64_t at = read_tail(fd, &tail);
    if (at < 0)
        return at;
    if (tail.count > max)
        return (int64_t)tail.count;
    int rc = pack_index_load(fd, &list);
    if (rc)
        return rc;
    int64_t count = (int64_t)list.count;
    if (list.count > max)
        count = -EBADMSG; /* it was changed meanwhile */
    else if (list.count)
        memcpy(out, list.entries, list.count * sizeof(*out));
    pack_list_free(&list);
    return count;
}
