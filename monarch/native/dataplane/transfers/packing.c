/* packing.c - Transfers that end in a packed Tier, as a frame, and Files that wait for one.
 *
 * What fill reads goes into a frame at once. What a program waits for goes into the Pool as
 * it is, and from there into a frame when there is time (repacking.c).
 */
#include "dataplane/transfers/packing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/media/codec.h"
#include "dataplane/transfers/deferred.h"
#include "dataplane/demand/demand.h"
#include "dataplane/transfers/extent_packing.h"
#include "dataplane/extents/packs.h"
#include "dataplane/extents/staging_table.h"
#include "dataplane/base/syscalls.h"
#include "shared/catalog.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

/* packing_applies - the Transfer is to end in a packed Tier, as a frame. */
bool packing_applies(const struct engine *e, const struct transfer *t)
{
    return e->packs && !transfer_adopts(t) &&
           table_packs(e->table, t->order.tier, t->order.file);
}

/* packing_create - begins the frame. */
int packing_create(struct engine *e, struct transfer *t)
{
    (void)e;
    t->step = MONARCH_STEP_CREATE;
    return frame_new(t->order.tier, t->size, &t->frame);
}

/* packing_write - compresses the next piece into the frame. A slow codec is no sign of an
 * origin that does not answer. */
int packing_write(struct engine *e, struct transfer *t, const void *bytes, size_t n)
{
    struct packed_codec *codec = packs_codec(e->packs, t->frame->tier, t->order.file);
    if (t->leaves_plain)
        return frame_add(t->frame, NULL, bytes, n);
    struct coder *coder = packs_coder(e->packs, codec);
    if (!coder)
        return -ENOMEM;
    health_note_wait(t, true);
    int rc = frame_add(t->frame, coder, bytes, n);
    health_note_wait(t, false);
    packs_coder_back(e->packs, codec, coder);
    return rc;
}

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* packing_name - the name of a Replica as its frame has it. */
void packing_name(const char *replica, uint8_t out[FRAME_NAME_BYTES])
{
    for (int i = 0; i < FRAME_NAME_BYTES; i++)
        out[i] = (uint8_t)(digit(replica[2 * i]) << 4 | digit(replica[2 * i + 1]));
}

/* packing_file_name - that of the Replica of a File. */
void packing_file_name(const struct engine *e, uint32_t file,
                       uint8_t out[FRAME_NAME_BYTES])
{
    char name[REPLICA_NAME_BYTES + 1];
    catalog_replica_name(e->catalog, file, name);
    packing_name(name, out);
}

/* packing_is_of - bytes begin as a frame of the File does. */
bool packing_is_of(const struct engine *e, uint32_t file, const uint8_t *bytes)
{
    struct frame_head head;
    uint8_t expected[FRAME_NAME_BYTES];
    memcpy(&head, bytes, sizeof(head));
    packing_file_name(e, file, expected);
    return head.magic == FRAME_MAGIC &&
           memcmp(head.name, expected, sizeof(expected)) == 0;
}

/* packing_head - the head that the frame of a File has in a Tier. */
struct frame_head packing_head(const struct engine *e, const struct transfer *t,
                               uint32_t tier)
{
    struct frame_head head;
    packs_head(packs_codec(e->packs, tier, t->order.file), &head);
    head.plain = (uint32_t)t->size;
    packing_name(t->name, head.name);
    return head;
}

/* append - writes the frame, with a checksum of its plain bytes, behind the others of its
 * Tier. */
static int append(struct engine *e, struct transfer *t, uint64_t digest,
                  struct frame_place *place)
{
    struct frame_head head = packing_head(e, t, t->frame->tier);
    head.digest = digest;
    frame_finish(t->frame, &head);
    t->step = MONARCH_STEP_WRITE;
    return packs_append(e->packs, t->frame->tier, t->frame->bytes, t->frame->used,
                        place);
}

/* packing_place - writes the frame, and it is that of the row; again if its segment was dropped
 * meanwhile for others. -ECANCELED: that has happened too often. */
int packing_place(struct engine *e, struct transfer *t, uint64_t row, uint64_t digest)
{
    enum { DROPS_MAX = 4 };
    for (int n = 0; n < DROPS_MAX; n++) {
        struct frame_place place;
        int rc = append(e, t, digest, &place);
        if (rc || packs_set(e->packs, row, &place))
            return rc;
    }
    return -ECANCELED;
}

/* packing_publish - the last step: the File is packed from now on. What turns out to have no
 * room is refused, or stays where it is. */
int packing_publish(struct engine *e, struct transfer *t)
{
    struct monarch_order order = t->order;
    if (t->leaves_plain)
        return deferred_add(e, t);
    if (transfer_defers(t)) /* its File is staging, and not in the Pool */
        order.kind &= (uint8_t)~MONARCH_LOCAL;
    const struct packed_frame done = {
        .bytes = t->frame->used, .ns = t->frame->ns, .raw = !t->frame->any_packed};
    t->step = MONARCH_STEP_PUBLISH;
    int rc = table_take_packed(e->table, &order, &done);
    packing_go_on(e);
    if (rc)
        return rc == -ENOSPC ? 0 : rc;
    rc = packing_place(e, t, packs_row(e->packs, order.file, 0), *t->first_digest);
    if (rc) {
        table_give_packed(e->table, &order, &done);
        return rc;
    }
    t->step = MONARCH_STEP_PUBLISH;
    rc = table_set_packed(e->table, &order, &done);
    if (rc)
        packs_forget(e->packs, packs_row(e->packs, t->order.file, 0));
    return rc;
}

/* packing_decode - decodes a piece into all of `out`. -EBADMSG: it has not so many bytes. */
int packing_decode(struct engine *e, const struct packed_piece *piece, uint8_t *out,
                   size_t n)
{
    struct coder *coder = packs_coder(e->packs, piece->codec);
    if (!coder)
        return -ENOMEM;
    int rc = monarch_coder_unpack(coder, piece->bytes, piece->length, out, n);
    packs_coder_back(e->packs, piece->codec, coder);
    return rc;
}

/* packing_give_up - a frame is damaged: the File comes from elsewhere. */
void packing_give_up(struct engine *e, uint32_t file)
{
    table_drop_packed(e->table, file);
    packs_forget(e->packs, packs_row(e->packs, file, 0));
}

/* ---- Files that peers send packed ------------------------------------------------------ */

/* packing_wanted - the frames that this node can use for a File, by packs_id(), and the Tier
 * whose they are; 0: none. */
uint32_t packing_wanted(struct engine *e, const struct transfer *t, uint32_t *tier)
{
    int found = e->packs ? table_packing_tier(e->table, &t->order) : -1;
    if (found < 0)
        return 0;
    *tier = (uint32_t)found;
    return packs_id(e->packs, *tier, t->order.file);
}

/* ---- Files in the Pool that are to be packed ------------------------------------------- */

/* packing_note - a File has come into the Pool, perhaps for a packed Tier. */
void packing_note(struct engine *e, uint32_t file)
{
    if (e->packs && table_is_due(e->table, file))
        packs_queue(e->packs, file);
}

/* packing_waits - a File is to be packed, or to be compressed for that. */
bool packing_waits(const struct engine *e)
{
    return e->packs &&
           (packs_waiting(e->packs) || extents_wait(e) || deferred_waits(e));
}

/* packing_hurries - one is, and the Pool is short of room: programs wait for it. */
bool packing_hurries(const struct engine *e)
{
    return packing_waits(e) && (table_pool_is_crowded(e->table) ||
                                (extents_wait(e) && table_pool_is_short(e->table)));
}

/* packing_go_on - frames under way may have left room for Files that found none. Where others
 * leave a Tier for them, eviction_go_on_packing() does it. */
void packing_go_on(struct engine *e)
{
    uint32_t file;
    if (e->packs && packs_blocked(e->packs, &file) &&
        !table_others_leave(e->table, file))
        packs_unblock(e->packs);
}

/* packing_next - the order for the next File that is to be packed. */
bool packing_next(struct engine *e, struct monarch_order *out)
{
    uint32_t file;
    while (e->packs && packs_next(e->packs, &file)) {
        if (table_begin_packing(e->table, file, out))
            return true;
        if (table_is_due(e->table, file))
            packs_block(e->packs, file);
    }
    return extent_next(e, out);
}

/* packing_undo - that order could not be queued. */
void packing_undo(struct engine *e, const struct monarch_order *order)
{
    if (order->block_count)
        extent_packing_undo(e, order);
    else
        monarch_table_fail(e->table, order, REASON_NONE, 1);
}
