/* peer_server_blocks.c - gives peers Blocks of large Files, also of those that still fill.
 *
 * The bytes are read and compared with the checksums that were computed when they came, so
 * that damage on this node goes no further, and sealed for this reply.
 */
#include "dataplane/peers/peer_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/demand/demand.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/xxh3.h"

static struct block_run run_of(const struct pending_request *p)
{
    return (struct block_run){p->extent, p->blocks};
}

/* server_blocks_there - all Blocks of a request are there. */
bool server_blocks_there(struct server *s, const struct pending_request *p)
{
    struct held held;
    return server_piece_there(s, p) ||
           partial_hold(s->demand->partials, p->file, run_of(p), &held);
}

/* server_blocks_ask - has the Blocks of a request brought, with those that the peer will
 * ask for next. A File that is not staged in part is asked for whole. */
void server_blocks_ask(struct server *s, const struct pending_request *p)
{
    int64_t large = presence_find(s->demand->job->flags, p->file);
    if (!s->demand->partials->count || large < 0) {
        demand_for_peer(s->demand, p->file);
        return;
    }
    struct page_range range = {(uint32_t)large, p->extent * BLOCK_PAGES,
                               p->wanted * (uint32_t)BLOCK_PAGES};
    pages_requested(s->demand, range, p->flags & FRAME_UNASKED);
}

/* server_blocks_want - programs of the peer wait for Blocks now that its fill has requested. */
void server_blocks_want(struct server *s, struct server_connection *c,
                        const struct frame_request *f)
{
    const struct pending_request all = {
        .file = f->file, .extent = f->extent, .blocks = f->blocks, .wanted = f->wanted};
    for (uint32_t i = 0; i < c->pending_count; i++) {
        struct pending_request *p = &c->pending[i];
        if (p->blocks && p->file == f->file && p->extent >= f->extent &&
            p->extent < f->extent + f->wanted)
            p->flags &= (uint8_t)~FRAME_UNASKED;
    }
    server_blocks_ask(s, &all);
}

static int read_all(int fd, uint8_t *buffer, size_t n, uint64_t offset)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, buffer + done, n - done, (off_t)(offset + done));
        if (got == 0)
            return -EIO;
        if (got < 0 && errno != EINTR)
            return -errno;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* read_held - bytes of a Replica that is there, from the file in its Tier. */
static int read_held(struct demand *d, const struct held *held, uint64_t offset,
                     uint8_t *buffer, size_t n)
{
    if (held->tier >= TIERS_MAX || d->job->tiers[held->tier] < 0)
        return -EIO;
    int fd = file_openat(d->job->tiers[held->tier], held->name, O_RDONLY | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = read_all(fd, buffer, n, offset);
    close(fd);
    return rc;
}

struct extent_sum {
    uint64_t chain;          /* the checksum so far, unless there is a seal */
    struct sealing *sealing; /* or NULL */
};

/* read_extent - reads a whole Extent of a READY Replica for its checksum or seal. */
static int read_extent(struct demand *d, const struct held *held,
                       const struct extent_name *name, uint8_t *buffer,
                       struct extent_sum *sum)
{
    uint64_t first = (uint64_t)name->extent * EXTENT_BYTES;
    int rc = 0;
    for (uint64_t at = 0; !rc && at < name->bytes; at += CHUNK_BYTES) {
        uint64_t left = name->bytes - at;
        size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        rc = read_held(d, held, first + at, buffer, n);
        if (!rc && sum->sealing)
            rc = seal_add(sum->sealing, buffer, n);
        else if (!rc)
            sum->chain = xxh3(buffer, n, sum->chain);
    }
    return rc;
}

/* check_extent - where the checksums of the Blocks are not known, because this node stages
 * the File whole, that of their Extent or its seal tells whether they are as they came. */
static int check_extent(struct demand *d, const struct pending_request *p,
                        const struct held *held, uint8_t *buffer)
{
    uint32_t extent = p->extent / EXTENT_BLOCKS;
    uint64_t place = d->transfers->options.digest_first[p->file] + extent;
    uint64_t size = catalog_entry(d->job->catalog, p->file, NULL)->size;
    const struct extent_name name = {
        .file = p->file, .extent = extent, .bytes = extent_bytes(size, extent)};
    const struct monarch_seal seal = extent_seal(d->transfers, place);
    struct extent_sum sum = {0};
    uint8_t tag[SEAL_TAG_BYTES];
    int rc = d->transfers->sealer
                 ? seal_begin(d->transfers->sealer, &name, &seal, &sum.sealing)
                 : 0;
    rc = rc ? rc : read_extent(d, held, &name, buffer, &sum);
    int ended = sum.sealing ? seal_end(&sum.sealing, tag) : 0;
    if (rc || ended)
        return rc ? rc : ended;
    bool right = d->transfers->sealer
                     ? seal_same(tag, seal.tag)
                     : sum.chain ==
                           __atomic_load_n(&d->transfers->options.digests[place],
                                           __ATOMIC_RELAXED);
    return right ? 0 : -EBADMSG;
}

/* as_they_came - the bytes have the checksums of their Blocks, where these are known. */
static bool as_they_came(const struct held *held, const uint8_t *bytes, size_t n)
{
    uint64_t digests[HELD_MAX];
    if (!held->checked)
        return true;
    blocks_digest(bytes, n, digests);
    for (size_t i = 0; i * BLOCK_BYTES < n; i++)
        if (digests[i] != held->digests[i])
            return false;
    return true;
}

/* server_blocks_attach - reads the bytes of a reply. -EAGAIN: they are not there any more;
 * -EIO: they are damaged, and the Replica is given up; else the error of the Tier. */
int server_blocks_attach(struct server *s, const struct pending_request *p,
                         struct reply *out)
{
    struct demand *d = s->demand;
    struct held held;
    uint64_t size = catalog_entry(d->job->catalog, p->file, NULL)->size;
    int sent = server_piece_attach(s, p, out);
    if (sent != -ENOENT)
        return sent;
    if (!partial_hold(d->partials, p->file, run_of(p), &held))
        return -EAGAIN;
    if (!(out->bytes = server_take_buffer(s)))
        return -ENOMEM;
    size_t n = (size_t)blocks_bytes(size, p->extent, p->blocks);
    int rc = held.checked ? 0 : check_extent(d, p, &held, out->bytes);
    rc = rc ? rc : read_held(d, &held, held.offset, out->bytes, n);
    if (!partial_held_still(d->job, p->file, &held))
        return -EAGAIN;
    if (rc || !as_they_came(&held, out->bytes, n)) {
        partial_damaged(d->partials, p->file, &held);
        return -EIO;
    }
    out->head.size = out->left = n;
    out->offset = 0;
    const struct extent_name name = {p->file, p->extent, n, p->blocks};
    return server_certify(d->transfers->sealer, &name, out->bytes, &out->head);
}
