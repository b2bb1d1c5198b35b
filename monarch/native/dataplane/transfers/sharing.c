/* sharing.c - Transfers of Files that another job of this user has: its Replica gets a name in
 * this job's Tier, too.
 *
 * Where peers or a later job are to get checksums and seals, the bytes are read once from the Tier.
 * A Replica that goes meanwhile is no error: the File is copied from the origin.
 */
#include <errno.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/table.h"
#include "dataplane/sources/siblings.h"
#include "dataplane/transfers/packing.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/progress.h"

static int find(struct transfers *ts, struct transfer *t, struct sibling_copy *out)
{
    const struct sought file = {&t->original, t->name, t->tier_dev};
    progress_store(ts->job->requests, t->order.file, 0); /* nothing is read yet */
    int rc = siblings_find(ts->siblings, &file, out);
    if (rc != -EAGAIN)
        return rc;
    readers_leave(ts, t);
    health_note_wait(t, true);
    siblings_await(ts->siblings, &file);
    health_note_wait(t, false);
    return siblings_find(ts->siblings, &file, out);
}

/* may_share - the File is to have a plain file of its own, that stays. */
static bool may_share(const struct transfers *ts, const struct transfer *t)
{
    return ts->siblings && ts->table && t->original.size &&
           !table_is_pool(ts->table, t->order.tier) && !packing_applies(ts, t);
}

/* is_confirmed - the Catalog says what the origin says, as far as this job knows. */
static bool is_confirmed(const struct transfers *ts, const struct transfer *t)
{
    uint32_t root = 0;
    const struct entry *e = catalog_entry(ts->job->catalog, t->order.file, &root);
    return entry_confirmed(ts->job->catalog, root, e);
}

/* sharing_begin - 0: another job has the File, whose Replica is open as the target; SHARING_NONE:
 * none has it. -ESTALE: the index of an earlier job does not tell what the File is now. */
int sharing_begin(struct transfers *ts, struct transfer *t)
{
    struct sibling_copy copy;
    if (!may_share(ts, t) || find(ts, t, &copy))
        return SHARING_NONE;
    t->target = copy.fd;
    t->replica_ino = copy.ino;
    t->from = SOURCE_SIBLING;
    return is_confirmed(ts, t) ? 0 : transfer_open_origin(ts, t);
}

/* add_chunk - the next chunk, for checksum and seal. */
static int add_chunk(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->offset;
    size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    if (job_stopping(ts->job))
        return -ECANCELED;
    int rc = t->offset % EXTENT_BYTES ? 0 : extent_begin(ts, t, NULL);
    if (!rc && file_read_at(t->target, buffer, n, t->offset) != (ssize_t)n)
        rc = -EIO;
    rc = rc ? rc : extent_add(ts, t, buffer, n);
    t->offset += rc ? 0 : n;
    progress_store(ts->job->requests, t->order.file, progress_of(t->offset));
    health_note_step(ts, t);
    if (rc || (t->offset % EXTENT_BYTES && t->offset < t->original.size))
        return rc;
    rc = extent_end(t);
    if (!rc)
        extent_store(ts, t);
    return rc;
}

/* start_over - the Transfer copies from the origin, as if no job had the File. */
static void start_over(struct transfer *t)
{
    seal_drop(&t->sealing);
    if (t->target >= 0)
        close(t->target);
    if (t->source >= 0)
        close(t->source);
    t->target = t->source = -1;
    t->from = SOURCE_NONE;
    t->offset = t->chain = 0;
    t->digest = t->first_digest;
}

/* sharing_finish - publishes the Replica of another job as one of this job; -EAGAIN: it has gone,
 * and the Transfer starts over. */
int sharing_finish(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    int rc = 0;
    t->step = MONARCH_STEP_VERIFY;
    while (!rc && (ts->sealer || ts->options.retains) && t->offset < t->original.size)
        rc = add_chunk(ts, t, buffer);
    rc = rc ? rc : transfer_publish(ts, t);
    if (!rc || rc == -ECANCELED || rc == -ESTALE || rc == -ENXIO)
        return rc;
    start_over(t);
    return -EAGAIN;
}
