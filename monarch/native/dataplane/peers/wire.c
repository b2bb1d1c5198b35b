/* wire.c - makes and checks the frames between peers, and reads their traffic
 * counts. */
#include "dataplane/peers/wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "dataplane/extents/partial.h"
#include "dataplane/media/frame.h"
#include "shared/catalog.h"
#include "shared/xxh3.h"

/* frame_request_make - makes the request for a range, without announcing further ones. */
struct frame_request frame_request_make(const struct catalog *cat, uint64_t id,
                                        uint32_t file, struct block_run range)
{
    return (struct frame_request){.magic = FRAME_REQUEST_MAGIC,
                                  .blocks = (uint8_t)range.count,
                                  .wanted = (uint8_t)range.count,
                                  .id = id,
                                  .catalog_digest = cat->digest,
                                  .file = file,
                                  .first = range.first};
}

/* frame_is_extent - the range of a request is all of an Extent. */
bool frame_is_extent(const struct catalog *cat, const struct frame_request *f)
{
    uint64_t size = catalog_entry(cat, f->file, NULL)->size;
    return f->first % EXTENT_BLOCKS == 0 &&
           f->blocks == extent_blocks(size, f->first / EXTENT_BLOCKS);
}

/* names_its_range - the range of a request lies in its File. */
static bool names_its_range(const struct catalog *cat, const struct frame_request *f)
{
    uint64_t size = catalog_entry(cat, f->file, NULL)->size;
    uint64_t end = (uint64_t)f->first + f->blocks;
    if (!f->blocks || end > (size ? blocks_of(size) : 1) || f->blocks > f->wanted ||
        f->first % EXTENT_BLOCKS + f->wanted > EXTENT_BLOCKS)
        return false;
    if (frame_is_extent(cat, f))
        return true;
    uint32_t most = f->packing ? FRAME_BLOCKS_MAX - f->first % FRAME_BLOCKS_MAX
                               : FRAME_BLOCKS_MAX;
    return f->blocks <= most;
}

/* frame_check_request - returns 0; -ESTALE: it names another Catalog; -EPROTO: it is malformed. */
int frame_check_request(const struct catalog *cat, const struct frame_request *f)
{
    if (f->magic != FRAME_REQUEST_MAGIC || f->reserved || f->reserved_too ||
        f->flags & ~(FRAME_UNASKED | FRAME_WANTED | FRAME_WHOLE))
        return -EPROTO;
    if (f->catalog_digest != cat->digest)
        return -ESTALE;
    if (!catalog_entry(cat, f->file, NULL))
        return -EPROTO;
    if (f->flags & FRAME_WHOLE && !frame_is_extent(cat, f))
        return -EPROTO;
    return names_its_range(cat, f) ? 0 : -EPROTO;
}

/* has_size - the reply has as many bytes as its range, or as a frame of it may have. */
static bool has_size(const struct catalog *cat, const struct frame_request *request,
                     const struct frame_reply *f)
{
    uint64_t size = catalog_entry(cat, request->file, NULL)->size;
    const struct block_run pieces = frame_pieces_range(request);
    uint64_t plain = blocks_bytes(size, pieces.first, pieces.count);
    size_t least = frame_least_bytes(plain);
    if (!f->packed)
        return f->size == blocks_bytes(size, request->first, request->blocks);
    return request->packing && f->size > least && f->size <= least + plain;
}

/* frame_check_reply - returns -EPROTO unless the reply answers the request with the size in the
 * Catalog. */
int frame_check_reply(const struct catalog *cat, const struct frame_request *request,
                      const struct frame_reply *f)
{
    if (f->magic != FRAME_REPLY_MAGIC || f->id != request->id ||
        f->file != request->file || f->first != request->first)
        return -EPROTO;
    if ((f->ready && f->ready != FRAME_READY) ||
        (f->packed && f->packed != FRAME_IS_PACKED) || f->reserved)
        return -EPROTO;
    if (f->status)
        return f->status < 0 && f->status >= STATUS_MIN && !f->size ? 0 : -EPROTO;
    return has_size(cat, request, f) ? 0 : -EPROTO;
}

/* frame_range_digest - returns the digest of the plain bytes of a range in a frame: of a whole
 * Extent, or the chained checksums of its Blocks, which nodes keep. */
uint64_t frame_range_digest(bool whole, const uint8_t *bytes, size_t n)
{
    uint64_t digests[FRAME_BLOCKS_MAX], chain = 0;
    for (size_t at = 0; whole && at < n; at += CHUNK_BYTES)
        chain = xxh3(bytes + at, n - at < CHUNK_BYTES ? n - at : CHUNK_BYTES, chain);
    if (whole)
        return chain;
    blocks_digest(bytes, n, digests);
    return xxh3(digests, (n + BLOCK_BYTES - 1) / BLOCK_BYTES * sizeof(*digests), 0);
}

/* traffic_copy - copies the counts of all peers while another thread adds to them: each is valid,
 * but they are not of one moment. */
void traffic_copy(const struct monarch_traffic *from, struct monarch_traffic *to,
                  uint32_t peers)
{
    _Atomic uint64_t *in = (_Atomic uint64_t *)(uintptr_t)from;
    uint64_t *out = (uint64_t *)to;
    for (size_t i = 0; i < peers * (sizeof(*from) / sizeof(*out)); i++)
        out[i] = atomic_load_explicit(&in[i], memory_order_relaxed);
}
