/* peer_server_replies.c - makes the reply to a peer: a whole Extent by sendfile(), Blocks of a
 * large File, also of one that still fills, or the pieces of a frame, without decoding them.
 *
 * The checksum and the seal of an Extent were made when it arrived. Blocks are compared with the
 * checksums of their arrival, so that damage on this node spreads no further, and are sealed for
 * this reply; so are frames, whose plain bytes the peer compares when it decodes them.
 */
#include "dataplane/peers/peer_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/xxh3.h"

/* How long a peer's fill waits for a frame: else the peer would compress the File itself. */
static const uint64_t FRAME_WAIT_NS = SECOND_NS;

/* How often the bytes of a reply are looked for while they move. */
enum { LOOKS_MAX = 4 };

static uint64_t size_of(const struct demand *d, const struct pending_request *p)
{
    return catalog_entry(d->job->catalog, p->asked.file, NULL)->size;
}

static bool is_extent(const struct demand *d, const struct pending_request *p)
{
    return frame_is_extent(d->job->catalog, &p->asked);
}

static uint64_t range_bytes(const struct demand *d, const struct pending_request *p)
{
    return blocks_bytes(size_of(d, p), p->asked.first, p->asked.blocks);
}

/* ---- bytes in memory ------------------------------------------------------------------- */

/* take_buffer - takes a buffer for the bytes of a reply; -ENOMEM: no memory. */
static int take_buffer(struct server *s, struct reply *out, size_t n)
{
    out->large = n > CHUNK_BYTES;
    if (out->large)
        out->bytes = malloc(n);
    else
        out->bytes = s->spare_count ? s->spares[--s->spare_count] : malloc(CHUNK_BYTES);
    return out->bytes ? 0 : -ENOMEM;
}

/* reply_release - returns the Replica and the buffer of a reply. */
void reply_release(struct server *s, struct reply *out)
{
    if (out->replica)
        open_replicas_put(out->replica);
    if (out->bytes && !out->large && s->spare_count < SERVER_SPARES_MAX)
        s->spares[s->spare_count++] = out->bytes;
    else
        free(out->bytes);
    out->replica = NULL;
    out->bytes = NULL;
}

/* certify - computes the seal of the bytes of a reply, or their checksum if nodes make no seals. */
static int certify(struct sealer *sealer, const struct pending_request *p,
                   struct reply *out, size_t n)
{
    struct frame_reply *head = &out->head;
    struct running_sum sum = {0};
    head->size = out->left = n;
    const struct range_name name = frame_sealed_name(&p->asked, head);
    int rc = sealer ? seal_nonce(&head->seal) : 0;
    rc = rc ? rc : sum_begin(&sum, sealer, &name, &head->seal);
    for (size_t at = 0; !rc && at < n; at += CHUNK_BYTES)
        rc = sum_add(&sum, out->bytes + at,
                     n - at < CHUNK_BYTES ? n - at : CHUNK_BYTES);
    int ended = sum_end(&sum);
    head->digest = sum.chain;
    head->seal = sum.seal;
    return rc ? rc : ended;
}

/* ---- frames ------------------------------------------------------------------------------ */

struct found_frame {
    struct unpacking u;
    uint64_t digests[FRAME_BLOCKS_MAX]; /* of the Blocks of a large File */
    uint64_t offset;                    /* of the bytes to send, in the segment */
    size_t bytes;
    bool raw; /* they are Blocks that are stored plain */
};

static uint64_t row_of(const struct demand *d, const struct pending_request *p)
{
    return packs_row(d->packs, p->asked.file, p->asked.first / EXTENT_BLOCKS);
}

/* find_frame - finds the frame with a range; false: none, or the peer cannot decode it. */
static bool find_frame(struct demand *d, const struct pending_request *p,
                       struct found_frame *out)
{
    const struct frame_request *asked = &p->asked;
    return asked->packing && d->packs && packs_take(d->packs, row_of(d, p), &out->u) &&
           packs_id(d->packs, out->u.tier, asked->file) == asked->packing &&
           (p->whole || partial_digests(d->partials, asked->file, frame_range(asked),
                                        out->digests));
}

/* read_head - reads the head of a frame; -EBADMSG: it is not one of this Extent. */
static int read_head(struct demand *d, const struct pending_request *p,
                     struct unpacking *u)
{
    struct frame_head expected;
    uint32_t file = p->asked.file;
    packs_head(packs_codec(d->packs, u->tier, file), &expected);
    expected.plain = (uint32_t)extent_bytes(size_of(d, p),
                                            p->asked.first / EXTENT_BLOCKS);
    expected.stored = u->place.bytes - (uint32_t)sizeof(u->head);
    job_frame_name(d->job, file, expected.name);
    int found = frame_read(u->fd, u->place.offset, &expected, &u->head, u->lengths);
    return found > 0 ? 0 : -EBADMSG;
}

/* find_pieces - finds the bytes of the segment to send: the pieces of the range, and makes this
 * their head; or only the Blocks of a piece that is stored plain. */
static void find_pieces(struct demand *d, const struct pending_request *p,
                        struct found_frame *f)
{
    const struct block_run run = frame_pieces_range(&p->asked);
    uint32_t first = run.first % EXTENT_BLOCKS / FRAME_BLOCKS_MAX;
    struct frame_head *head = &f->u.head;
    f->offset = f->u.place.offset + frame_least_bytes(head->plain);
    for (uint32_t i = 0; i < first; i++)
        f->offset += f->u.lengths[i] & ~FRAME_RAW;
    f->raw = !p->whole && f->u.lengths[first] & FRAME_RAW;
    if (f->raw) {
        f->offset += (uint64_t)(p->asked.first % FRAME_BLOCKS_MAX) * BLOCK_BYTES;
        f->bytes = (size_t)range_bytes(d, p);
        return;
    }
    head->plain = (uint32_t)blocks_bytes(size_of(d, p), run.first, run.count);
    uint32_t pieces = frame_pieces(head->plain);
    memmove(f->u.lengths, f->u.lengths + first, pieces * sizeof(*f->u.lengths));
    f->bytes = 0;
    for (uint32_t i = 0; i < pieces; i++)
        f->bytes += f->u.lengths[i] & ~FRAME_RAW;
    head->stored = (uint32_t)(pieces * sizeof(*f->u.lengths) + f->bytes);
    if (!is_extent(d, p))
        head->digest = xxh3(f->digests, p->asked.blocks * sizeof(*f->digests), 0);
}

/* match_digests - plain bytes match the checksums of their Blocks. */
static bool match_digests(const uint64_t *digests, const uint8_t *bytes, size_t n)
{
    uint64_t found[HELD_MAX];
    blocks_digest(bytes, n, found);
    return memcmp(found, digests,
                  (n + BLOCK_BYTES - 1) / BLOCK_BYTES * sizeof(*found)) == 0;
}

/* read_pieces - reads the bytes of a frame to send into the reply. */
static int read_pieces(struct server *s, struct found_frame *f, struct reply *out,
                       size_t front)
{
    size_t lengths = front ? front - sizeof(f->u.head) : 0;
    int rc = take_buffer(s, out, front + f->bytes);
    if (rc)
        return rc;
    if (front)
        memcpy(out->bytes, &f->u.head, sizeof(f->u.head));
    memcpy(out->bytes + sizeof(f->u.head), f->u.lengths, lengths);
    if (file_read_at(f->u.fd, out->bytes + front, f->bytes, f->offset) !=
        (ssize_t)f->bytes)
        return -EBADMSG;
    return !f->raw || match_digests(f->digests, out->bytes, f->bytes) ? 0 : -EBADMSG;
}

/* give_up_frame - drops a damaged frame, unless it has moved to another place. */
static void give_up_frame(struct demand *d, const struct pending_request *p,
                          const struct found_frame *f)
{
    if (!packs_moved(d->packs, row_of(d, p), &f->u.place))
        packs_drop_damaged(d->packs, p->asked.file, p->asked.first / EXTENT_BLOCKS);
}

/* attach_frame - makes the reply with a frame; -EAGAIN: it is gone or damaged. */
static int attach_frame(struct server *s, const struct pending_request *p,
                        struct found_frame *f, struct reply *out)
{
    struct demand *d = s->demand;
    int rc = read_head(d, p, &f->u);
    if (!rc)
        find_pieces(d, p, f);
    size_t front = f->raw ? 0 : frame_least_bytes(f->u.head.plain);
    rc = rc ? rc : read_pieces(s, f, out, front);
    if (rc == -EBADMSG)
        give_up_frame(d, p, f);
    out->head.packed = f->raw ? 0 : FRAME_IS_PACKED;
    rc = rc ? rc : certify(d->transfers->sealer, p, out, front + f->bytes);
    return rc ? -EAGAIN : 0;
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static int read_all(int fd, uint8_t *buffer, size_t n, uint64_t offset)
{
    ssize_t got = file_read_at(fd, buffer, n, offset);
    if (got < 0)
        return (int)got;
    return (size_t)got == n ? 0 : -EIO;
}

/* check_extent - checks Blocks by the checksum or the seal of their Extent, if this node has no
 * checksums of Blocks because it stages the File whole. */
static int check_extent(struct demand *d, const struct pending_request *p, int fd,
                        uint8_t *buffer)
{
    uint32_t extent = p->asked.first / EXTENT_BLOCKS;
    uint64_t place = d->transfers->options.digest_first[p->asked.file] + extent;
    uint64_t size = size_of(d, p), end = extent_bytes(size, extent);
    const struct range_name name = {p->asked.file, extent * EXTENT_BLOCKS, end,
                                    extent_blocks(size, extent)};
    const struct monarch_seal seal = extent_seal(d->transfers, place);
    const uint64_t *digests = d->transfers->options.digests;
    struct running_sum sum = {0};
    int rc = sum_begin(&sum, d->transfers->sealer, &name, &seal);
    for (uint64_t at = 0; !rc && at < end; at += CHUNK_BYTES) {
        size_t n = end - at < CHUNK_BYTES ? (size_t)(end - at) : CHUNK_BYTES;
        rc = read_all(fd, buffer, n, (uint64_t)extent * EXTENT_BYTES + at);
        rc = rc ? rc : sum_add(&sum, buffer, n);
    }
    int ended = sum_end(&sum);
    if (rc || ended)
        return rc ? rc : ended;
    bool right = d->transfers->sealer
                     ? seal_same(sum.seal.tag, seal.tag)
                     : sum.chain == __atomic_load_n(&digests[place], __ATOMIC_RELAXED);
    return right ? 0 : -EBADMSG;
}

/* read_held - reads Blocks of a Replica from its file in its Tier. */
static int read_held(struct demand *d, const struct pending_request *p,
                     const struct held *held, uint8_t *buffer, size_t n)
{
    if (held->tier >= TIERS_MAX || d->job->tiers[held->tier] < 0)
        return -EIO;
    int fd = file_openat(d->job->tiers[held->tier], held->name, O_RDONLY | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = held->checked ? 0 : check_extent(d, p, fd, buffer);
    rc = rc ? rc : read_all(fd, buffer, n, held->offset);
    close(fd);
    if (!rc && held->checked && !match_digests(held->digests, buffer, n))
        rc = -EBADMSG;
    return rc;
}

/* attach_blocks - makes the reply with Blocks; -EAGAIN: they are no longer present; -EIO: they are
 * damaged, and the Replica is given up. */
static int attach_blocks(struct server *s, const struct pending_request *p,
                         struct reply *out)
{
    struct demand *d = s->demand;
    struct held held;
    size_t n = (size_t)range_bytes(d, p);
    if (!partial_hold(d->partials, p->asked.file, frame_range(&p->asked), &held))
        return -EAGAIN;
    if (take_buffer(s, out, n))
        return -EIO;
    int rc = read_held(d, p, &held, out->bytes, n);
    if (!partial_is_held(d->job, p->asked.file, &held))
        return -EAGAIN;
    if (rc)
        partial_damaged(d->partials, p->asked.file, &held);
    return rc || certify(d->transfers->sealer, p, out, n) ? -EIO : 0;
}

/* ---- whole Extents ------------------------------------------------------------------------- */

/* attach_extent - makes the reply with an Extent; -EIO: the Replica is not what was published. */
static int attach_extent(struct server *s, const struct pending_request *p,
                         struct reply *out)
{
    struct demand *d = s->demand;
    uint32_t file = p->asked.file, extent = p->asked.first / EXTENT_BLOCKS;
    uint64_t place = d->transfers->options.digest_first[file] + extent;
    if (open_replicas_get(d->job, s->replicas, file, &out->single, &out->replica)) {
        report_file(d->transfers, file); /* Python checks the Replica */
        return -EIO;
    }
    out->head.replica = out->replica->stamp;
    out->head.size = out->left = range_bytes(d, p);
    out->head.digest = __atomic_load_n(&d->transfers->options.digests[place],
                                       __ATOMIC_RELAXED);
    out->head.seal = extent_seal(d->transfers, place);
    out->offset = (int64_t)extent * EXTENT_BYTES;
    return 0;
}

/* ---- all replies --------------------------------------------------------------------------- */

/* is_ready - the File has a Replica that is READY. */
static bool is_ready(const struct demand *d, const struct pending_request *p)
{
    return STATE_OF(replica_load(d->job->catalog, p->asked.file)) == REPLICA_READY;
}

/* frame_comes - no program waits for the File, which will soon be packed. */
static bool frame_comes(const struct demand *d, const struct pending_request *p,
                        uint64_t now)
{
    return p->asked.packing && p->asked.flags & FRAME_UNASKED && d->packs &&
           now - p->since_ns < FRAME_WAIT_NS && table_is_due(d->table, p->asked.file);
}

/* reply_is_there - the range can be sent. */
bool reply_is_there(struct server *s, const struct pending_request *p, uint64_t now)
{
    struct demand *d = s->demand;
    struct found_frame frame;
    struct held held;
    if (find_frame(d, p, &frame))
        return true;
    if (p->whole)
        return is_ready(d, p) && !frame_comes(d, p, now);
    return partial_hold(d->partials, p->asked.file, frame_range(&p->asked), &held);
}

/* reply_is_ready - the node has the requested range, in some form. */
bool reply_is_ready(struct server *s, const struct pending_request *p)
{
    struct demand *d = s->demand;
    if (!p->whole)
        return reply_is_there(s, p, p->since_ns);
    return is_ready(d, p) ||
           (d->packs && table_will_be_restaged(d->table, p->asked.file));
}

/* reply_ask - requests the Blocks of a request, with those that the peer will request next. A File
 * that is not staged in part is requested whole. */
void reply_ask(struct server *s, const struct pending_request *p)
{
    struct demand *d = s->demand;
    int64_t large = presence_find(d->job->flags, p->asked.file);
    if (p->whole || !d->partials->count || large < 0) {
        demand_for_peer(d, p->asked.file);
        return;
    }
    struct page_range range = {(uint32_t)large, p->asked.first * BLOCK_PAGES,
                               p->asked.wanted * (uint32_t)BLOCK_PAGES};
    pages_requested(d, range, p->asked.flags & FRAME_UNASKED);
}

/* attach - finds the bytes of a reply once. */
static int attach(struct server *s, const struct pending_request *p, struct reply *out)
{
    struct found_frame frame;
    int rc;
    out->head.packed = 0;
    if (find_frame(s->demand, p, &frame))
        rc = attach_frame(s, p, &frame, out);
    else
        rc = p->whole ? attach_extent(s, p, out) : attach_blocks(s, p, out);
    if (rc)
        reply_release(s, out);
    return rc;
}

/* reply_attach - finds the bytes of a reply. They may move between the Pool and a packed Tier
 * meanwhile, so that it looks more than once. -EAGAIN: the peer must request again; -EIO: they are
 * damaged, or cannot be read. */
int reply_attach(struct server *s, const struct pending_request *p, struct reply *out)
{
    int looks = 1, rc = attach(s, p, out);
    while (rc == -EAGAIN && looks++ < LOOKS_MAX && reply_is_there(s, p, clock_ns()))
        rc = attach(s, p, out);
    if (rc)
        out->head.size = out->left = 0;
    return rc;
}
