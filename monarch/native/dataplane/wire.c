/* wire.c - makes and checks the frames between peers, and reads their traffic
 * counts. */
#include "dataplane/wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

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

/* frame_check_request - 0; -ESTALE: it names another Catalog; -EPROTO: it is
 * malformed. */
int frame_check_request(const struct catalog *cat, const struct frame_request *f)
{
    if (f->magic != FRAME_REQUEST_MAGIC || f->kind != FRAME_EXTENT || f->reserved)
        return -EPROTO;
    if (f->catalog_digest != cat->digest)
        return -ESTALE;
    const struct entry *entry = catalog_entry(cat, f->file, NULL);
    if (!entry || f->extent >= frame_extents(entry->size))
        return -EPROTO;
    return 0;
}

/* frame_check_reply - -EPROTO unless it answers the request, with as many bytes as the
 * Catalog says. */
int frame_check_reply(const struct catalog *cat, const struct frame_request *request,
                      const struct frame_reply *f)
{
    if (f->magic != FRAME_REPLY_MAGIC || f->id != request->id ||
        f->file != request->file || f->extent != request->extent)
        return -EPROTO;
    if (f->ready && f->ready != FRAME_READY)
        return -EPROTO;
    if (f->status)
        return f->status < 0 && f->status >= STATUS_MIN && !f->size ? 0 : -EPROTO;
    const struct entry *entry = catalog_entry(cat, f->file, NULL);
    if (!entry || f->extent >= frame_extents(entry->size))
        return -EPROTO;
    return f->size == frame_extent_bytes(entry->size, f->extent) ? 0 : -EPROTO;
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
