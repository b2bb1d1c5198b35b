/* transfer_parts.c - the common parts of Transfers from all Sources: their begin, the checksum and
 * the seal of each Extent, and their end.
 *
 * The checksum and the seal of each Extent are computed while its bytes pass, and kept as long as
 * the agent lives: peers get them with the bytes, so that the server need not read the bytes and
 * can use sendfile(). Checksums are also stored in the manifest of a retained Tier; seals are not,
 * as the next job has another key. With seals and without a retained Tier, checksums are not
 * computed: they cost half as much as seals.
 */
#include "dataplane/transfers/transfer.h"

#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/eviction.h"
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
    t->read.fd = t->file.fd = -1;
    t->read.chunks = 1;
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
    t->file.dir = ts->job->tiers[t->order.tier];
    t->file.dev = cat->tiers[t->order.tier].dev;
    t->sum.at = ts->options.digests + ts->options.digest_first[file];
    t->sum.first = t->sum.at;
    catalog_replica_name(cat, file, t->file.name);
    return 0;
}

/* transfer_open_origin - opens the source at the origin and compares it with the Catalog. */
int transfer_open_origin(struct transfers *ts, struct transfer *t)
{
    int fd = origin_open(ts->job, &t->original);
    t->step = t->original.step;
    t->read.fd = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

/* transfer_origin_same - see origin_same(). */
int transfer_origin_same(struct transfer *t)
{
    t->step = MONARCH_STEP_STAT;
    return origin_same(&t->original, t->read.fd);
}

/* transfer_origin_unchanged - see origin_unchanged(). */
int transfer_origin_unchanged(struct transfer *t)
{
    t->step = MONARCH_STEP_STAT;
    return origin_unchanged(&t->original, t->read.fd);
}

/* transfer_drop_pages - see origin_drop(). */
void transfer_drop_pages(const struct transfers *ts, const struct transfer *t,
                         uint64_t offset, uint64_t n)
{
    const struct origin_range read = {t->read.fd, offset, n};
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
    t->step = MONARCH_STEP_ORDER;
    int rc = locate(ts, t);
    if (rc)
        return rc;
    if (t->file.dir < 0) {
        t->step = MONARCH_STEP_CREATE;
        return t->file.dir;
    }
    return transfer_written(ts, t) ? -ESTALE : 0;
}

/* transfer_check - transfer_prepare(), as the step of a route. */
int transfer_check(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    return transfer_prepare(ts, t);
}

/* sum_begin - begins the checksum of a range, and its seal if there is a sealer, under the nonce of
 * another seal. */
int sum_begin(struct running_sum *sum, struct sealer *sealer,
              const struct range_name *name, const struct monarch_seal *seal)
{
    sum->chain = 0;
    if (!sealer)
        return 0;
    sum->seal = *seal;
    return seal_begin(sealer, name, &sum->seal, &sum->sealing);
}

/* sum_add - adds the next bytes, in chunks of CHUNK_BYTES except for the last ones; with a seal, to
 * the seal only. */
int sum_add(struct running_sum *sum, const void *bytes, size_t n)
{
    if (sum->sealing)
        return seal_add(sum->sealing, bytes, n);
    sum->chain = xxh3(bytes, n, sum->chain);
    return 0;
}

/* sum_end - ends a range: `chain` or the tag of `seal` is complete. */
int sum_end(struct running_sum *sum)
{
    return sum->sealing ? seal_end(&sum->sealing, sum->seal.tag) : 0;
}

/* extent_begin - begins an Extent, under a new nonce. */
int extent_begin(struct transfers *ts, struct transfer *t)
{
    uint32_t extent = (uint32_t)(t->read.offset / EXTENT_BYTES);
    const struct range_name name = {.file = t->order.file,
                                    .first = extent * EXTENT_BLOCKS,
                                    .bytes = extent_bytes(t->original.size, extent),
                                    .blocks = extent_blocks(t->original.size, extent)};
    struct monarch_seal seal = {0};
    int rc = ts->sealer ? seal_nonce(&seal) : 0;
    return rc ? rc : sum_begin(&t->sum, ts->sealer, &name, &seal);
}

/* extent_add - adds the next bytes: chunks of CHUNK_BYTES, except for the last one of an Extent. */
int extent_add(struct transfers *ts, struct transfer *t, const void *bytes, size_t n)
{
    if (!ts->options.seals_only || transfer_is_local(t) || t->frame || t->came)
        t->sum.chain = xxh3(bytes, n, t->sum.chain);
    return t->sum.sealing ? seal_add(t->sum.sealing, bytes, n) : 0;
}

/* extent_store - stores checksum and seal for the peer server, and advances to the next Extent. The
 * lock is for a File that is staged again: a mixture of an old and a new seal would make this node
 * look like a forger. */
void extent_store(struct transfers *ts, struct transfer *t)
{
    uint64_t place = (uint64_t)(t->sum.at - ts->options.digests);
    __atomic_store_n(t->sum.at++, t->sum.chain, __ATOMIC_RELAXED);
    t->sum.chain = 0;
    if (!ts->sealer)
        return;
    pthread_mutex_lock(&ts->seals_lock);
    ts->options.seals[place] = t->sum.seal;
    pthread_mutex_unlock(&ts->seals_lock);
}

/* extent_seal - returns the stored seal; all zero if this node makes none. */
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

/* transfer_publish - publishes the Replica: the last step of every Transfer. */
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

/* transfer_commit - transfer_publish(), as the step of a route. */
int transfer_commit(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)buffer;
    return transfer_publish(ts, t);
}

/* completion_kind - returns the kind for Python, which judges bytes of a peer as a fetch, even if
 * they were compressed later. */
static uint8_t completion_kind(const struct transfer *t)
{
    return transfer_defers(t) ? t->order.kind & (uint8_t)~MONARCH_LOCAL : t->order.kind;
}

/* transfer_end - closes the files of a Transfer and fills in its completion. A failed
 * copy leaves no file; an adopted Replica with a wrong checksum is removed. */
void transfer_end(struct transfer *t, int status)
{
    seal_drop(&t->sum.sealing);
    frame_free(&t->frame);
    frame_free(&t->came);
    if (t->read.fd >= 0)
        close(t->read.fd);
    if (t->file.fd >= 0)
        close(t->file.fd);
    if (t->file.named)
        unlinkat(t->file.dir, t->file.temporary, 0);
    if (status == -EBADMSG && transfer_adopts(t))
        unlinkat(t->file.dir, t->file.name, 0);
    t->read.fd = t->file.fd = -1;
    t->file.named = false;
    t->completion = (struct monarch_completion){
        .file = t->order.file,
        .tier = t->order.tier,
        .kind = completion_kind(t),
        .step = t->step,
        .peer = t->order.peer,
        .word = t->order.word,
        .status = status,
        .pages = t->order.page_count,
        .bytes = t->spent.bytes,
        .ns = t->spent.ns,
        .ended_ns = clock_ns(),
    };
}
