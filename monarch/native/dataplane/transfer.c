/* transfer.c - carries a Transfer from its order to its completion, chunk by chunk. */
#include "dataplane/transfer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/extent.h"
#include "dataplane/health.h"
#include "shared/catalog.h"
#include "shared/index.h"

/* transfer_init - makes an idle Transfer ready to run. */
void transfer_init(struct transfer *t, const struct monarch_order *order)
{
    memset(t, 0, sizeof(*t));
    t->order = *order;
    t->source = t->target = -1;
}

/* locate - finds the File and copies its identity; -EINVAL: no such File, Tier, kind. */
static int locate(struct engine *e, struct transfer *t)
{
    const struct catalog *cat = e->catalog;
    uint32_t file = t->order.file;
    if (t->order.tier >= cat->tier_count || t->order.kind > MONARCH_ADOPT_BACKGROUND)
        return -EINVAL;
    const struct entry *entry = catalog_entry(cat, file, &t->root);
    if (!entry)
        return -EINVAL;
    const struct attr *attr = index_attr(catalog_block(cat, t->root), entry);
    t->dev = attr->dev;
    t->owner = attr->uid;
    t->ino = entry->ino;
    t->size = entry->size;
    t->mtime_ns = entry->mtime_ns;
    t->ctime_ns = entry->ctime_ns;
    t->tier = e->tiers[t->order.tier];
    t->tier_dev = cat->tiers[t->order.tier].dev;
    t->digest = e->options.digests + e->options.digest_first[file];
    catalog_replica_name(cat, file, t->name);
    return 0;
}

/* transfer_written - nothing of the File is to be staged or served any more. */
bool transfer_written(const struct engine *e, const struct transfer *t)
{
    return written_load(e->flags, t->root, t->order.file);
}

/* transfer_prepare - begins a Transfer, whatever its source: -EINVAL or what is wrong with
 * the Tier; -ESTALE: the File is marked written. */
int transfer_prepare(struct engine *e, struct transfer *t)
{
    t->begun = true;
    t->step = MONARCH_STEP_ORDER;
    int rc = locate(e, t);
    if (rc)
        return rc;
    if (t->tier < 0) {
        t->step = MONARCH_STEP_CREATE;
        return t->tier;
    }
    return transfer_written(e, t) ? -ESTALE : 0;
}

static int begin(struct engine *e, struct transfer *t)
{
    int rc = transfer_prepare(e, t);
    if (rc)
        return rc;
    if (transfer_adopts(t))
        return adopt_open(t, e->euid);
    rc = origin_open(e, t);
    return rc ? rc : copy_create(e, t);
}

static int begin_counted(struct engine *e, struct transfer *t)
{
    int rc = begin(e, t);
    health_note_step(e, t);
    return rc;
}

/* end_extent - keeps checksum and seal of an Extent; a Replica that is adopted must have
 * the checksum that an earlier job has noted. */
static int end_extent(struct engine *e, struct transfer *t)
{
    int rc = extent_end(t);
    if (!rc && transfer_adopts(t)) {
        t->step = MONARCH_STEP_VERIFY;
        rc = *t->digest == t->chain ? 0 : -EBADMSG;
    }
    if (!rc)
        extent_keep(e, t);
    return rc;
}

/* read_chunk - the bytes that come, or -errno. */
static ssize_t read_chunk(struct engine *e, struct transfer *t, uint8_t *buffer,
                          size_t n)
{
    uint64_t began = n >= CHUNK_BYTES ? clock_ns() : 0;
    size_t got = 0, piece;
    ssize_t came;
    do {
        piece = health_piece(e, t, n - got);
        came = file_read(t->source, buffer + got, piece);
        if (came < 0)
            return came;
        got += (size_t)came;
        if (piece < n)
            health_note_step(e, t);
    } while ((size_t)came == piece && got < n);
    if (began)
        health_note_chunk(e, t, clock_ns() - began);
    return (ssize_t)got;
}

/* move_chunk - reads up to CHUNK_BYTES, writes them, adds them to the checksum. The read
 * that should reach the end asks for one byte more: it must not get it. */
static int move_chunk(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->size - t->offset;
    size_t want = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    t->step = MONARCH_STEP_READ;
    ssize_t got = read_chunk(e, t, buffer, want + (want == left));
    if (got < 0)
        return (int)got;
    if (engine_stops(e))
        return -ECANCELED;
    if (transfer_written(e, t)) /* perhaps on another node: the rest is of no use */
        return -ESTALE;
    if (!transfer_adopts(t))
        t->bytes += (uint64_t)got;
    if ((size_t)got != want)
        return transfer_adopts(t) ? -EBADMSG : -ESTALE;
    int rc = t->offset % EXTENT_BYTES ? 0 : extent_begin(e, t, NULL);
    rc = rc ? rc : extent_add(e, t, buffer, want);
    if (!rc && !transfer_adopts(t))
        rc = copy_write(t, buffer, want);
    if (rc)
        return rc;
    t->offset += want;
    return t->offset % EXTENT_BYTES == 0 || t->offset == t->size ? end_extent(e, t) : 0;
}

/* transfer_publish - the last step of every Transfer. */
int transfer_publish(struct engine *e, struct transfer *t)
{
    if (engine_stops(e))
        return -ECANCELED;
    t->step = MONARCH_STEP_PUBLISH;
    return transfer_written(e, t) ? -ESTALE : copy_publish(e, t);
}

static int finish(struct engine *e, struct transfer *t)
{
    int rc = t->size == 0 ? extent_begin(e, t, NULL) : 0;
    if (!rc && t->size == 0)
        rc = end_extent(e, t);
    if (!rc && !transfer_adopts(t)) {
        rc = origin_unchanged(t);
        rc = rc ? rc : copy_verify(t);
    }
    return rc ? rc : transfer_publish(e, t);
}

enum { UNFINISHED = 1 };

/* run - 0, -errno or UNFINISHED. */
static int run(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    int rc = t->begun ? 0 : begin_counted(e, t);
    while (!rc && t->offset < t->size) {
        rc = move_chunk(e, t, buffer);
        health_note_step(e, t);
        if (!rc && order_class(t->order.kind) == CLASS_BACKGROUND &&
            t->offset < t->size)
            return UNFINISHED;
    }
    return rc ? rc : finish(e, t);
}

/* transfer_run - carries a Transfer on with a buffer of TRANSFER_BUFFER_BYTES; true when
 * it has ended. A background one returns after each chunk, to let others go first. */
bool transfer_run(struct engine *e, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc = run(e, t, buffer);
    health_note_step(e, t);
    t->ns += clock_ns() - began;
    if (rc == UNFINISHED)
        return false;
    transfer_end(t, rc);
    return true;
}

/* transfer_end - releases all that a Transfer holds and fills in its completion. A copy
 * that failed leaves no file, a Replica that is not what it should be is removed. */
void transfer_end(struct transfer *t, int status)
{
    seal_drop(&t->sealing);
    if (t->source >= 0)
        close(t->source);
    if (t->target >= 0)
        close(t->target);
    if (t->named)
        unlinkat(t->tier, t->temporary, 0);
    if (status == -EBADMSG && transfer_adopts(t))
        unlinkat(t->tier, t->name, 0);
    t->source = t->target = -1;
    t->named = false;
    t->completion = (struct monarch_completion){
        .file = t->order.file,
        .tier = t->order.tier,
        .kind = t->order.kind,
        .step = t->step,
        .status = status,
        .bytes = t->bytes,
        .ns = t->ns,
    };
}
