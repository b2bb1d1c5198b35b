/* sibling_route.c - the Source "another job of this user": links its Replica into this job's Tier.
 *
 * If peers or a later job need checksums and seals, the bytes are read once from the Tier. If the
 * Replica disappears meanwhile, the File is copied from the origin.
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

static struct sought sought_by(const struct transfer *t)
{
    return (struct sought){&t->original, t->file.name, t->file.dev, t->partial};
}

/* find_once - looks once for a Replica of the File in other jobs; see siblings_find(). */
static int find_once(struct transfers *ts, const struct transfer *t,
                     struct sibling_copy *out)
{
    const struct sought file = sought_by(t);
    return siblings_find(ts->siblings, &file, out);
}

/* await - waits while another job reads the File. This Transfer shows no progress meanwhile, so
 * that jobs do not wait for each other. */
static bool await(struct transfers *ts, struct transfer *t, uint64_t until_ns)
{
    const struct sought file = sought_by(t);
    progress_store(ts->job->requests, t->order.file, 0);
    readers_leave(ts, t);
    health_note_wait(t, true);
    bool ended = siblings_await(ts->siblings, &file, until_ns);
    health_note_wait(t, false);
    return ended;
}

/* last_ns - returns until when to wait for another job: programs that wait for this Transfer see no
 * progress meanwhile, and have a time-out. */
static uint64_t last_ns(const struct transfers *ts)
{
    return clock_ns() + ts->job->catalog->cold_timeout_ns / 2;
}

/* find - finds a Replica of the File in other jobs; waits until `until_ns` for a job that reads it.
 * This job shows that it looks before it looks, so that one of the jobs reads the File. */
static int find(struct transfers *ts, struct transfer *t, uint64_t until_ns,
                struct sibling_copy *out)
{
    int rc;
    do {
        progress_store(ts->job->requests, t->order.file, PROGRESS_LOOKS);
        atomic_thread_fence(memory_order_seq_cst);
        rc = find_once(ts, t, out);
    } while (rc == -EAGAIN && await(ts, t, until_ns));
    return rc;
}

/* sharing_has - another job has the File READY; with `waits` this waits for a job that reads it,
 * until programs request the File. */
bool sharing_has(struct transfers *ts, struct transfer *t, bool waits)
{
    struct sibling_copy copy;
    int rc = waits ? find(ts, t, last_ns(ts), &copy) : find_once(ts, t, &copy);
    if (!rc)
        close(copy.fd);
    else if (waits)
        progress_store(ts->job->requests, t->order.file, PROGRESS_BEGUN);
    return !rc;
}

/* may_share - the File is to have a plain file of its own that stays. */
static bool may_share(const struct transfers *ts, const struct transfer *t)
{
    return ts->siblings && ts->table && t->original.size &&
           !table_is_pool(ts->table, t->order.tier) && !packing_applies(ts, t);
}

/* is_confirmed - the Catalog agrees with the origin, as far as this job knows. */
static bool is_confirmed(const struct transfers *ts, const struct transfer *t)
{
    uint32_t root = 0;
    const struct entry *e = catalog_entry(ts->job->catalog, t->order.file, &root);
    return entry_confirmed(ts->job->catalog, root, e);
}

/* take - makes the Replica of another job the file of this Transfer. -ESTALE: the File differs from
 * the index of an earlier job. */
static int take(struct transfers *ts, struct transfer *t,
                const struct sibling_copy *copy)
{
    t->file.fd = copy->fd;
    t->file.ino = copy->ino;
    t->from = SOURCE_SIBLING;
    return is_confirmed(ts, t) ? 0 : transfer_open_origin(ts, t);
}

static int open_shared(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    struct sibling_copy copy;
    (void)buffer;
    if (!may_share(ts, t) || find(ts, t, last_ns(ts), &copy))
        return STEP_ELSEWHERE;
    return take(ts, t, &copy);
}

/* sharing_link - links a large File that another job has READY, and publishes it. -ENOENT: no job
 * has it; any other error: this job copies it. No checksums are computed. */
int sharing_link(struct transfers *ts, const struct monarch_order *order)
{
    struct transfer t;
    struct sibling_copy copy;
    transfer_init(&t, order);
    int rc = transfer_prepare(ts, &t);
    rc = rc ? rc : find_once(ts, &t, &copy);
    rc = rc ? rc : take(ts, &t, &copy);
    rc = rc ? rc : transfer_publish(ts, &t);
    transfer_end(&t, rc);
    return rc;
}

/* read_shared - reads the next chunk, if checksums or seals are to be made. */
static int read_shared(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t left = t->original.size - t->read.offset;
    size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    t->step = MONARCH_STEP_VERIFY;
    if (job_stopping(ts->job))
        return -ECANCELED;
    if (!ts->sealer && !ts->options.retains && ts->options.alone)
        n = 0; /* its checksum is not needed */
    t->read.piece = n;
    bool whole = !n ||
                 file_read_at(t->file.fd, buffer, n, t->read.offset) == (ssize_t)n;
    return whole ? 0 : -EIO;
}

/* add_sum - adds the chunk to checksum and seal. */
static int add_sum(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    if (!t->read.piece)
        return 0;
    int rc = t->read.offset % EXTENT_BYTES ? 0 : extent_begin(ts, t);
    rc = rc ? rc : extent_add(ts, t, buffer, t->read.piece);
    if (rc)
        return rc;
    t->read.offset += t->read.piece;
    progress_store(ts->job->requests, t->order.file, progress_of(t->read.offset));
    bool last = t->read.offset == t->original.size;
    if (t->read.offset % EXTENT_BYTES && !last)
        return STEP_MORE;
    rc = sum_end(&t->sum);
    if (rc)
        return rc;
    extent_store(ts, t);
    return last ? 0 : STEP_MORE;
}

/* settle - falls back to the origin if the Replica has disappeared meanwhile. */
static int settle(struct transfers *ts, struct transfer *t, int rc)
{
    (void)ts;
    if (!rc || !transfer_shares(t) || rc == -ECANCELED || rc == -ESTALE || rc == -ENXIO)
        return rc;
    seal_drop(&t->sum.sealing);
    if (t->file.fd >= 0)
        close(t->file.fd);
    if (t->read.fd >= 0)
        close(t->read.fd);
    t->file.fd = t->read.fd = -1;
    t->from = SOURCE_NONE;
    t->read.offset = t->sum.chain = 0;
    t->sum.at = t->sum.first;
    return STEP_ELSEWHERE;
}

const struct route route_sibling = {
    .steps = {[TRANSFER_CHECK] = transfer_check,
              [TRANSFER_OPEN] = open_shared,
              [TRANSFER_BRING] = read_shared,
              [TRANSFER_WRITE] = add_sum,
              [TRANSFER_COMMIT] = transfer_commit},
    .settle = settle,
    .next = &route_origin,
};
