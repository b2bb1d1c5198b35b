/* packing.c - Transfers into a packed Tier, and Files that wait to be packed.
 *
 * Files that fill reads are packed at once. Files that programs wait for are staged plain in the
 * Pool, and packed from there later (pool_packing.c).
 */
#include "dataplane/transfers/packing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/packs.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/codec.h"
#include "dataplane/transfers/deferred.h"
#include "dataplane/transfers/idle_packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/progress.h"
#include "shared/xxh3.h"

/* packing_applies - the Transfer writes a frame into a packed Tier. */
bool packing_applies(const struct transfers *ts, const struct transfer *t)
{
    return ts->packs && !transfer_adopts(t) &&
           table_packs(ts->table, t->order.tier, t->order.file);
}

/* packing_create - begins the frame. */
int packing_create(struct transfer *t)
{
    t->step = MONARCH_STEP_CREATE;
    uint64_t plain = extent_bytes(t->original.size, order_extent(&t->order));
    return frame_new(t->order.tier, plain, &t->frame);
}

struct packed_for { /* a Transfer whose piece is being compressed */
    struct transfers *ts;
    struct transfer *t;
};

static bool leaves_pool(const struct transfer *t)
{
    return transfer_repacks(t) && !transfer_defers(t);
}

/* lacks_room - others wait for space that this Transfer frees: in the Pool; or in its Tier, as its
 * frame may be smaller than its reservation. */
static bool lacks_room(const struct transfers *ts, const struct transfer *t)
{
    uint32_t file;
    return leaves_pool(t) ? packing_lacks_room(ts, t->partial != NULL)
                          : packs_blocked(ts->packs, &file);
}

/* hurries_for_room - lacks_room(), and this is one of the few Transfers that may hurry. */
static bool hurries_for_room(struct transfers *ts, struct transfer *t)
{
    if (t->turn.hurried || !lacks_room(ts, t))
        return t->turn.hurried;
    pthread_mutex_lock(&ts->lock);
    t->turn.hurried = pace_may_hurry(ts);
    pthread_mutex_unlock(&ts->lock);
    return t->turn.hurried;
}

/* hurries - a program or another node waits for the File, for space, or for a background Transfer
 * to end. */
static bool hurries(void *of)
{
    const struct packed_for *f = of;
    struct transfers *ts = f->ts;
    return job_stopping(ts->job) || job_awaits(ts->job, f->t->order.file) ||
           atomic_load_explicit(&f->t->turn.wanted, memory_order_relaxed) ||
           hurries_for_room(ts, f->t) || pace_is_held_up(ts, f->t);
}

/* is_for_idle - the piece may wait for an idle processor. */
static bool is_for_idle(const struct transfer *t, size_t n)
{
    return order_class(t->order.kind) == CLASS_BACKGROUND && n <= PIECE_BYTES &&
           n <= t->frame->plain - t->frame->added;
}

/* compress_idle - compresses a piece on an idle processor; false: the caller compresses it. The
 * wait is not counted as time of the origin, and others may have its token meanwhile. */
static bool compress_idle(struct transfers *ts, struct transfer *t,
                          struct coder **coder, const void *bytes, size_t n)
{
    struct packed_for f = {ts, t};
    const struct idle_piece piece = {bytes, n, frame_piece_room(n), hurries, &f};
    struct idle_result done;
    if (!*coder || !is_for_idle(t, n) || hurries(&f))
        return false;
    readers_leave(ts, t);
    uint64_t began = clock_ns();
    bool compressed = idle_packing_run(ts->idle_packing, coder, &piece,
                                       frame_end(t->frame), &done);
    t->spent.ns -= clock_ns() - began;
    if (!compressed)
        return false;
    t->spent.ns += done.cpu_ns;
    t->frame->ns += done.cpu_ns;
    return frame_added(t->frame, done.packed, bytes, n) == 0;
}

/* packing_write - compresses the next piece into the frame. A slow codec does not count as an
 * origin that does not answer. */
int packing_write(struct transfers *ts, struct transfer *t, const void *bytes, size_t n)
{
    struct packed_codec *codec = packs_codec(ts->packs, t->frame->tier, t->order.file);
    if (t->leaves_plain)
        return frame_add(t->frame, NULL, bytes, n);
    struct coder *coder = packs_coder(ts->packs, codec);
    health_note_wait(t, true);
    bool done = compress_idle(ts, t, &coder, bytes, n);
    coder = coder || done ? coder : packs_coder(ts->packs, codec);
    int rc = coder || done ? 0 : -ENOMEM;
    if (!done && job_stopping(ts->job)) /* a slow codec would delay the end */
        rc = -ECANCELED;
    if (!rc && !done)
        rc = frame_add(t->frame, coder, bytes, n);
    health_note_wait(t, false);
    packs_coder_back(ts->packs, codec, coder);
    return rc;
}

/* packing_head - returns the head of a File's frame in a Tier. */
struct frame_head packing_head(const struct transfers *ts, const struct transfer *t,
                               uint32_t tier)
{
    struct frame_head head;
    packs_head(packs_codec(ts->packs, tier, t->order.file), &head);
    head.plain = (uint32_t)t->original.size;
    frame_name(t->file.name, head.name);
    return head;
}

/* append - appends the frame, with a checksum of its plain bytes, to its Tier. */
static int append(struct transfers *ts, struct transfer *t, uint64_t digest,
                  struct frame_place *at)
{
    struct frame_head head = packing_head(ts, t, t->frame->tier);
    head.digest = digest;
    frame_finish(t->frame, &head);
    t->step = MONARCH_STEP_WRITE;
    return packs_append(ts->packs, t->frame->tier, t->frame->bytes, t->frame->used, at);
}

/* place - writes the frame and makes it that of the Extent; repeats if its segment was dropped
 * meanwhile. -ECANCELED: that happened too often. */
static int place(struct transfers *ts, struct transfer *t, uint64_t digest)
{
    enum { DROPS_MAX = 4 };
    uint64_t row = packs_row(ts->packs, t->order.file, order_extent(&t->order));
    for (int n = 0; n < DROPS_MAX; n++) {
        struct frame_place at;
        int rc = append(ts, t, digest, &at);
        if (rc || packs_set(ts->packs, row, &at))
            return rc;
    }
    return -ECANCELED;
}

/* packing_commit - writes the frame of an Extent whose plain bytes have this checksum: the Extent
 * is packed from then on. -ENOSPC in MONARCH_STEP_PUBLISH: the frame does not fit into the Tier. */
int packing_commit(struct transfers *ts, struct transfer *t, uint64_t digest)
{
    struct monarch_order order = t->order;
    const struct packed_frame done = {
        .bytes = t->frame->used, .ns = t->frame->ns, .raw = !t->frame->any_packed};
    if (transfer_defers(t)) /* its File is staging, and not in the Pool */
        order.kind &= (uint8_t)~MONARCH_LOCAL;
    t->step = MONARCH_STEP_PUBLISH;
    int rc = table_take_packed(ts->table, &order, &done);
    packing_resume(ts);
    if (rc)
        return rc;
    rc = place(ts, t, digest);
    if (rc) {
        table_give_packed(ts->table, &order, &done);
        return rc;
    }
    t->step = MONARCH_STEP_PUBLISH;
    rc = table_set_packed(ts->table, &order, &done);
    if (rc)
        packs_forget(ts->packs, packs_row(ts->packs, order.file, order_extent(&order)));
    return rc;
}

/* packing_publish - publishes a small File. If its frame does not fit, the File is refused, or
 * stays where it is. */
int packing_publish(struct transfers *ts, struct transfer *t)
{
    if (t->leaves_plain)
        return deferred_add(ts, t);
    int rc = packing_commit(ts, t, *t->sum.first);
    return packing_found_no_room(t, rc) ? 0 : rc;
}

/* packing_decode - decodes a piece into all of `out`. -EBADMSG: it does not have n bytes. */
int packing_decode(struct transfers *ts, const struct packed_piece *piece, uint8_t *out,
                   size_t n)
{
    struct coder *coder = packs_coder(ts->packs, piece->codec);
    if (!coder)
        return -ENOMEM;
    int rc = monarch_coder_unpack(coder, piece->bytes, piece->length, out, n);
    packs_coder_back(ts->packs, piece->codec, coder);
    return rc;
}

/* ---- Files that peers send packed ------------------------------------------------------ */

/* packing_wanted - returns the packs_id() of the frames that this node can use for an Extent, and
 * their Tier; 0: none. */
uint32_t packing_wanted(struct transfers *ts, const struct transfer *t, uint32_t *tier)
{
    int found = ts->packs ? table_packing_tier(ts->table, &t->order) : -1;
    if (found < 0)
        return 0;
    *tier = (uint32_t)found;
    return packs_id(ts->packs, *tier, t->order.file);
}

/* ---- Files in the Pool, to be packed --------------------------------------------------- */

/* packing_note - queues a File in the Pool for packing, if a packed Tier is to hold it. */
void packing_note(struct transfers *ts, uint32_t file)
{
    if (ts->packs && table_is_due(ts->table, file))
        packs_queue(ts->packs, file, 0);
}

/* packing_has_pending - a File is queued for packing or for compression. */
bool packing_has_pending(const struct transfers *ts)
{
    return ts->packs && (packs_has_pending(ts->packs) || deferred_has_pending(ts));
}

/* packing_lacks_room - Extents in the Pool block programs, or soon will: some are packed as fast as
 * possible, and small Files too where that pays. Elsewhere these take only a part of the Pool, and
 * wait for idle processors. */
bool packing_lacks_room(const struct transfers *ts, bool extents)
{
    if (table_pool_is_crowded(ts->table) && (extents || table_packing_pays(ts->table)))
        return true;
    return extents && table_pool_is_short(ts->table);
}

/* packing_hurries - packing_lacks_room(), and something is queued for packing. */
bool packing_hurries(const struct transfers *ts)
{
    return ts->packs && packs_has_pending(ts->packs) &&
           packing_lacks_room(ts, packs_has_pending_extents(ts->packs));
}

/* packing_resume - retries Files that found no space, as in-flight frames may have released some.
 * Tiers that evict are handled by eviction_resume_packing(). */
void packing_resume(struct transfers *ts)
{
    uint32_t file;
    if (ts->packs && packs_blocked(ts->packs, &file) &&
        !table_can_evict_for(ts->table, file))
        packs_unblock(ts->packs);
}

/* packing_next - makes the order for the next Extent to pack; false: none. */
bool packing_next(struct transfers *ts, struct monarch_order *out)
{
    struct to_pack one;
    while (ts->packs && packs_next(ts->packs, &one)) {
        if (table_in_part(ts->table, one.file)
                ? extent_begin_packing(ts->partials, &one, out)
                : table_begin_packing(ts->table, one.file, out))
            return true;
        if (table_is_due(ts->table, one.file))
            packs_block(ts->packs, one.file);
    }
    return false;
}

/* packing_undo - undoes packing_next() for an order that could not be queued. */
void packing_undo(struct transfers *ts, const struct monarch_order *order)
{
    if (order->page_count)
        extent_packing_undo(ts->partials, order);
    else
        monarch_table_fail(ts->table, order, REASON_NONE, 1);
}

/* packing_decode_order - turns an order for Pages into one that decodes them. */
void packing_decode_order(const struct transfers *ts, struct monarch_order *order)
{
    order->kind |= MONARCH_LOCAL;
    order->peer = NO_PEER;
    order->tier = (uint16_t)ts->table->options.tiers;
}
