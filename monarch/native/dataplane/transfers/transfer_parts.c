/* transfer_parts.c - what Transfers from all Sources have in common: their begin, the checksum and the
 * seal of each Extent, and their end.
 *
 * The checksum and the seal of each Extent are computed while its bytes pass and kept
 * as long as the agent lives: peers get them with the bytes, so that the server needs
 * not read the bytes and can use sendfile(). Checksums also go to the manifest of a
 * retained Tier; seals do not, as the next job has another key. Where there are seals
 * and no Tier is retained, checksums are not computed: they cost half as much as seals.
 */
#include "dataplane/transfers/transfer.h"

#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/pool.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/packing.h"
#include "shared/catalog.h"
#include "shared/presence.h"
#include "shared/xxh3.h"

/* transfer_init - sets an idle Transfer to its order. */
void transfer_init(struct transfer *t, const struct monarch_order *order)
{
    memset(t, 0, sizeof(*t));
    t->order = *order;
    t->source = t->target = -1;
    t->chunks = 1;
}

/* locate - copies the identity of the File; -EINVAL: no such File, Tier or kind. */
static int locate(struct transfers *ts, struct transfer *t)
{
    const struct catalog *cat = ts->job->catalog;
    uint32_t file = t->order.file;
    if (t->order.tier >= cat->tier_count)
        return -EINVAL;
    int rc = origin_find(ts->job, file, &t->original);
    if (rc)
        return rc;
    t->tier = ts->job->tiers[t->order.tier];
    t->tier_dev = cat->tiers[t->order.tier].dev;
    t->digest = ts->options.digests + ts->options.digest_first[file];
    t->first_digest = t->digest;
    catalog_replica_name(cat, file, t->name);
    return 0;
}

/* transfer_open_origin - opens the source at the origin and compares it with the Catalog. */
int transfer_open_origin(struct transfers *ts, struct transfer *t)
{
    int fd = origin_open(ts->job, &t->original);
    t->step = t->original.step;
    t->source = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

/* transfer_origin_same - see origin_same(). */
int transfer_origin_same(struct transfer *t)
{
    t->step = MONARCH_STEP_STAT;
    return origin_same(&t->original, t->source);
}

/* transfer_origin_unchanged - see origin_unchanged(). */
int transfer_origin_unchanged(struct transfer *t)
{
    t->step = MONARCH_STEP_STAT;
    return origin_unchanged(&t->original, t->source);
}

/* transfer_drop_pages - see origin_drop(). */
void transfer_drop_pages(const struct transfers *ts, const struct transfer *t,
                         uint64_t offset, uint64_t n)
{
    const struct origin_range read = {t->source, offset, n};
    origin_drop(ts->job, &t->original, &read);
}

/* transfer_written - the File is marked *written*: it must not be staged or served. */
bool transfer_written(const struct transfers *ts, const struct transfer *t)
{
    return written_load(ts->job->flags, t->original.root, t->order.file);
}

/* transfer_prepare - begins a Transfer from any Source. -EINVAL: see locate(); -ESTALE:
 * the File is marked *written*; else the error of the Tier. */
int transfer_prepare(struct transfers *ts, struct transfer *t)
{
    t->begun = true;
    t->step = MONARCH_STEP_ORDER;
    int rc = locate(ts, t);
    if (rc)
        return rc;
    if (t->tier < 0) {
        t->step = MONARCH_STEP_CREATE;
        return t->tier;
    }
    return transfer_written(ts, t) ? -ESTALE : 0;
}

/* extent_begin - begins an Extent. Its seal has the nonce of the peer's seal, with
 * which it is to be compared, or a new one if `peers` is NULL. */
int extent_begin(struct transfers *ts, struct transfer *t,
                 const struct monarch_seal *peers)
{
    uint32_t extent = (uint32_t)(t->offset / EXTENT_BYTES);
    const struct extent_name name = {.file = t->order.file,
                                     .extent = extent,
                                     .bytes = extent_bytes(t->original.size, extent)};
    int rc = 0;
    if (!ts->sealer)
        return 0;
    if (peers)
        t->seal = *peers;
    else
        rc = seal_nonce(&t->seal);
    return rc ? rc : seal_begin(ts->sealer, &name, &t->seal, &t->sealing);
}

/* extent_add - adds the next bytes: chunks of CHUNK_BYTES, but for the last one of an
 * Extent. */
int extent_add(struct transfers *ts, struct transfer *t, const void *bytes, size_t n)
{
    if (!ts->options.seals_only || transfer_is_local(t) || t->frame || t->came)
        t->chain = xxh3(bytes, n, t->chain);
    return t->sealing ? seal_add(t->sealing, bytes, n) : 0;
}

/* extent_end - ends an Extent: `chain` and the tag of `seal` are complete. */
int extent_end(struct transfer *t)
{
    return t->sealing ? seal_end(&t->sealing, t->seal.tag) : 0;
}

/* extent_store - stores checksum and seal for the peer server and goes on to the next
 * Extent. The lock is for a File that is staged again: a mixture of an old and a new
 * seal would make this node look like a forger. */
void extent_store(struct transfers *ts, struct transfer *t)
{
    uint64_t place = (uint64_t)(t->digest - ts->options.digests);
    __atomic_store_n(t->digest++, t->chain, __ATOMIC_RELAXED);
    t->chain = 0;
    if (!ts->sealer)
        return;
    pthread_mutex_lock(&ts->seals_lock);
    ts->options.seals[place] = t->seal;
    pthread_mutex_unlock(&ts->seals_lock);
}

/* extent_seal - the stored seal; all zero where this node makes none. */
struct monarch_seal extent_seal(struct transfers *ts, uint64_t place)
{
    struct monarch_seal seal = {0};
    if (!ts->sealer)
        return seal;
    pthread_mutex_lock(&ts->seals_lock);
    seal = ts->options.seals[place];
    pthread_mutex_unlock(&ts->seals_lock);
    return seal;
}

/* transfer_publish - the last step of every Transfer. */
int transfer_publish(struct transfers *ts, struct transfer *t)
{
    if (job_stopping(ts->job))
        return -ECANCELED;
    t->step = MONARCH_STEP_PUBLISH;
    int rc = transfer_written(ts, t) ? -ESTALE : replica_file_publish(ts, t);
    if (rc || !ts->pool || !table_is_pool(ts->table, t->order.tier))
        return rc;
    pool_published(ts->pool, t->order.file,
                   STATE_NEXT(t->order.word, REPLICA_READY, t->order.tier, t->from));
    if (!t->came)
        packing_note(ts, t->order.file);
    return 0;
}

/* transfer_end - closes the files of a Transfer and fills in its completion. A failed
 * copy leaves no file; an adopted Replica with a wrong checksum is removed. */
void transfer_end(struct transfer *t, int status)
{
    seal_drop(&t->sealing);
    frame_free(&t->frame);
    frame_free(&t->came);
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
        .peer = t->order.peer,
        .word = t->order.word,
        .status = status,
        .pages = t->order.page_count,
        .bytes = t->bytes,
        .ns = t->ns,
        .ended_ns = clock_ns(),
    };
}
