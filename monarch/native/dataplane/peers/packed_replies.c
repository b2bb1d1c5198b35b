/* packed_replies.c - gives peers Files as they stand in the pack files of this node, without
 * decoding them.
 *
 * The bytes are sealed for each reply: the seal of the File covers its plain bytes, which a
 * peer that keeps the frame does not see.
 */
#include "dataplane/peers/peer_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/extents/table.h"
#include "dataplane/media/packed_seal.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"
#include "shared/xxh3.h"

/* How long a peer that fills waits for a frame: else it would compress the File itself. */
static const uint64_t FRAME_WAIT_NS = SECOND_NS;

/* ---- buffers of replies whose bytes are in memory --------------------------------------- */

/* server_take_buffer - of CHUNK_BYTES, or NULL. */
uint8_t *server_take_buffer(struct server *s)
{
    return s->spare_count ? s->spares[--s->spare_count] : malloc(CHUNK_BYTES);
}

/* server_return_buffer - of a reply that has been sent, or NULL. */
void server_return_buffer(struct server *s, uint8_t **buffer)
{
    if (*buffer && s->spare_count < SERVER_SPARES_MAX)
        s->spares[s->spare_count++] = *buffer;
    else
        free(*buffer);
    *buffer = NULL;
}

/* server_certify - the seal of the bytes of a reply, or their checksum where the nodes make no
 * seals. */
int server_certify(struct sealer *sealer, const struct extent_name *name,
                   const uint8_t *bytes, struct frame_reply *head)
{
    if (!sealer) {
        head->digest = xxh3(bytes, head->size, 0);
        return 0;
    }
    int rc = seal_nonce(&head->seal);
    return rc ? rc : seal_make(sealer, name, bytes, &head->seal);
}

/* ---- frames ---------------------------------------------------------------------------- */

/* find - the frame of a File, if the peer can decode it. */
static bool find(struct demand *d, const struct pending_request *p,
                 struct unpacking *out)
{
    return p->packing && d->packs &&
           packs_take(d->packs, packs_row(d->packs, p->file, 0), out) &&
           packs_id(d->packs, out->tier, p->file) == p->packing;
}

/* server_frame_there - the File can be sent packed. */
bool server_frame_there(struct server *s, const struct pending_request *p)
{
    struct unpacking found;
    return find(s->demand, p, &found);
}

/* server_frame_comes - no program waits for the File, which will soon be packed. */
bool server_frame_comes(struct server *s, const struct pending_request *p, uint64_t now)
{
    const struct demand *d = s->demand;
    return p->packing && p->flags & FRAME_UNASKED && d->packs &&
           now - p->since_ns < FRAME_WAIT_NS && table_is_due(d->table, p->file);
}

/* read_frame - -EAGAIN: its segment was given up, or it is damaged. */
static int read_frame(struct demand *d, uint32_t file, const struct unpacking *u,
                      uint8_t *bytes)
{
    size_t n = u->place.bytes;
    ssize_t got = pread(u->fd, bytes, n, u->place.offset);
    if (got == (ssize_t)n && n > sizeof(u->head) &&
        job_frame_is_of(d->job, file, bytes))
        return 0;
    if (!packs_moved(d->packs, packs_row(d->packs, file, 0), &u->place))
        packs_drop_damaged(d->packs, file, 0);
    return -EAGAIN;
}

/* server_frame_attach - reads the frame of a reply. -ENOENT: there is none any more;
 * -EAGAIN: the peer is to ask again. */
int server_frame_attach(struct server *s, const struct pending_request *p,
                        struct reply *out)
{
    struct unpacking u;
    if (!find(s->demand, p, &u))
        return -ENOENT;
    out->large = u.place.bytes > CHUNK_BYTES;
    out->bytes = out->large ? malloc(u.place.bytes) : server_take_buffer(s);
    if (!out->bytes)
        return -EAGAIN;
    int rc = read_frame(s->demand, p->file, &u, out->bytes);
    out->head.size = u.place.bytes;
    const struct extent_name name = packed_seal_name(p->file, p->packing,
                                                     u.place.bytes);
    rc = rc ? rc
            : server_certify(s->demand->transfers->sealer, &name, out->bytes,
                             &out->head);
    if (rc) {
        out->head.size = 0;
        return -EAGAIN;
    }
    out->head.packed = FRAME_IS_PACKED;
    out->left = out->head.size;
    return 0;
}
