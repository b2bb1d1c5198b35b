/* wire.c - makes and checks the frames between peers, and reads their traffic
 * counts. */
#include "dataplane/peers/wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "dataplane/media/frame.h"
#include "shared/catalog.h"

/* frame_request_make - the request for one Extent. */
struct frame_request frame_request_make(const struct catalog *cat, uint64_t id,
                                        uint32_t file, uint32_t extent)
{
    return (struct frame_request){.magic = FRAME_REQUEST_MAGIC,
                                  .kind = FRAME_EXTENT,
                                  .id = id,
                                  .catalog_digest = cat->digest,
                                  .file = file,
                                  .extent = extent};
}

/* names_blocks - the Blocks of a request are Blocks of one Extent of the File. */
static bool names_blocks(const struct frame_request *f, uint64_t size)
{
    uint64_t blocks = (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
    uint64_t end = (uint64_t)f->extent + f->blocks;
    return f->blocks && f->blocks <= FRAME_BLOCKS_MAX && f->blocks <= f->wanted &&
           !(f->flags & ~FRAME_UNASKED) && end <= blocks &&
           f->extent % EXTENT_BLOCKS + f->wanted <= EXTENT_BLOCKS &&
           (!f->packing ||
            (f->kind == FRAME_BLOCKS && frame_in_piece(f->extent, f->blocks)));
}

static bool names_extent(const struct frame_request *f, uint64_t size)
{
    return !f->blocks && !f->wanted && !f->flags && !f->packing &&
           f->extent < extents_of(size);
}

static bool names_packed(const struct frame_request *f, uint64_t size)
{
    return !f->blocks && !f->wanted && !(f->flags & ~FRAME_UNASKED) && f->packing &&
           !f->extent && size && size <= EXTENT_BYTES;
}

/* names_its_bytes - what a request names is in a File of this size. */
static bool names_its_bytes(const struct frame_request *f, uint64_t size)
{
    if (f->kind == FRAME_PACKED)
        return names_packed(f, size);
    return f->kind == FRAME_EXTENT ? names_extent(f, size) : names_blocks(f, size);
}

/* frame_check_request - 0; -ESTALE: it names another Catalog; -EPROTO: it is
 * malformed. */
int frame_check_request(const struct catalog *cat, const struct frame_request *f)
{
    if (f->magic != FRAME_REQUEST_MAGIC || f->reserved ||
        (f->kind < FRAME_EXTENT || f->kind > FRAME_PACKED))
        return -EPROTO;
    if (f->catalog_digest != cat->digest)
        return -ESTALE;
    const struct entry *entry = catalog_entry(cat, f->file, NULL);
    if (!entry)
        return -EPROTO;
    return names_its_bytes(f, entry->size) ? 0 : -EPROTO;
}

/* frame_reply_bytes - the bytes that a request of a File that is in the Catalog is to
 * bring. */
uint64_t frame_reply_bytes(const struct catalog *cat, const struct frame_request *f)
{
    uint64_t size = catalog_entry(cat, f->file, NULL)->size;
    if (f->kind == FRAME_PACKED)
        return size;
    return f->kind == FRAME_BLOCKS ? blocks_bytes(size, f->extent, f->blocks)
                                   : extent_bytes(size, f->extent);
}

/* has_size - the reply has as many bytes as its request is to bring. */
static bool has_size(const struct catalog *cat, const struct frame_request *request,
                     const struct frame_reply *f)
{
    uint64_t plain = frame_reply_bytes(cat, request);
    if (!f->packed)
        return f->size == plain;
    if (request->kind == FRAME_BLOCKS)
        return request->packing && f->size > request->blocks * sizeof(uint64_t) &&
               f->size <= CHUNK_BYTES;
    return request->kind == FRAME_PACKED && f->size > frame_least_bytes(plain) &&
           f->size <= frame_least_bytes(plain) + plain;
}

/* frame_check_reply - -EPROTO unless it answers the request, with as many bytes as the
 * Catalog says. */
int frame_check_reply(const struct catalog *cat, const struct frame_request *request,
                      const struct frame_reply *f)
{
    if (f->magic != FRAME_REPLY_MAGIC || f->id != request->id ||
        f->file != request->file || f->extent != request->extent)
        return -EPROTO;
    if ((f->ready && f->ready != FRAME_READY) ||
        (f->packed && f->packed != FRAME_IS_PACKED) || f->reserved)
        return -EPROTO;
    if (f->status)
        return f->status < 0 && f->status >= STATUS_MIN && !f->size ? 0 : -EPROTO;
    return has_size(cat, request, f) ? 0 : -EPROTO;
}

/* traffic_copy - reads the counts of all peers while another thread adds to them: each
 * is valid, but they are not of one moment. */
void traffic_copy(const struct monarch_traffic *from, struct monarch_traffic *to,
                  uint32_t peers)
{
    _Atomic uint64_t *in = (_Atomic uint64_t *)(uintptr_t)from;
    uint64_t *out = (uint64_t *)to;
    for (size_t i = 0; i < peers * (sizeof(*from) / sizeof(*out)); i++)
        out[i] = atomic_load_explicit(&in[i], memory_order_relaxed);
}
