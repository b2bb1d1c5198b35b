/* demand.c - begins what programs and peers ask for: by the staging table, without
 * Python. */
#include "dataplane/demand/demand.h"

#include "dataplane/extents/partial.h"
#include "dataplane/extents/staging_table.h"
#include "shared/catalog.h"

/* demand_wanted - whether something follows from asking for a File in its state: it may
 * be staged, or it is READY and a program could not open its Replica. */
bool demand_wanted(const struct engine *e, uint32_t file)
{
    uint32_t word = replica_load(e->catalog, file);
    if (STATE_OF(word) == REPLICA_READY)
        return true;
    if (STATE_OF(word) == REPLICA_STAGING)
        return partial_lacks(e, file) || partial_is_to_be_whole(e, file);
    return STATE_OF(word) == REPLICA_ABSENT && STATE_REASON(word) == REASON_NONE;
}

/* is_stalled - the origin has to be read, and it does not answer. */
static bool is_stalled(struct engine *e, const struct monarch_order *order)
{
    uint32_t root = 0;
    if (order->peer != NO_PEER || (order->kind & (MONARCH_ADOPT | MONARCH_LOCAL)))
        return false;
    catalog_entry(e->catalog, order->file, &root);
    pthread_mutex_lock(&e->lock);
    bool stalled = e->roots[root].stalled;
    pthread_mutex_unlock(&e->lock);
    return stalled;
}

static void begin(struct engine *e, const struct monarch_order *order)
{
    if (is_stalled(e, order)) {
        monarch_table_fail(e->table, order, REASON_BUSY, 1);
        report_file(e, order->file); /* Python tries it again */
        return;
    }
    start_order(e, order);
}

/* is_whole - programs wait for the File until it is staged whole. */
static bool is_whole(const struct engine *e, uint32_t file)
{
    const struct flags *f = e->flags;
    const _Atomic uint8_t *whole = (const _Atomic uint8_t *)f + f->whole;
    return f->whole && atomic_load_explicit(&whole[file], memory_order_relaxed) &&
           e->table->options.sizes[file] <= e->catalog->cold_wait_max_whole_bytes;
}

/* begin_rest - begins the rest of a File of which programs have read Blocks. What finds no
 * room in the queue is asked for again. */
static void begin_rest(struct engine *e, uint32_t file)
{
    struct monarch_order order;
    pthread_mutex_lock(&e->lock);
    if (e->outstanding[CLASS_DEMAND] < ORDERS_MAX &&
        partial_order_rest(e, file, &order))
        scheduler_push(e, &order);
    pthread_mutex_unlock(&e->lock);
}

/* monarch_engine_demand - begins the Transfer of a File as it is done for programs, or,
 * without MONARCH_ASKED, as for fill. Python hears of those that it alone can judge: a
 * Replica that could not be opened, and a File whose origin does not answer. */
void monarch_engine_demand(struct engine *e, uint32_t file, uint32_t kind)
{
    struct monarch_order order;
    /* Of another node it is not known what waits there. */
    if ((kind & MONARCH_ASKED) &&
        (partial_lacks(e, file) || partial_is_to_be_whole(e, file))) {
        begin_rest(e, file);
        return;
    }
    if ((kind & MONARCH_ASKED) && (engine_is_awaited(e, file) || is_whole(e, file)))
        kind |= MONARCH_AWAITED;
    switch (eviction_begin(e, file, kind, &order)) {
    case VERDICT_BEGUN:
        begin(e, &order);
        break;
    case VERDICT_READY:
    case VERDICT_WRITTEN:
        report_file(e, file);
        break;
    case VERDICT_POOL:
        pool_queue_wait(e->pool_queue, file);
        break;
    default:
        break;
    }
}

/* demand - begins what a program asks for; without a table, Python does. */
void demand(struct engine *e, uint32_t file)
{
    atomic_store_explicit(&e->asked_ns, clock_ns(), memory_order_relaxed);
    if (e->table)
        monarch_engine_demand(e, file, MONARCH_ASKED);
    else
        report_file(e, file);
}

/* demand_for_peer - asks for a File on behalf of another node. */
void demand_for_peer(struct engine *e, uint32_t file)
{
    if (demand_wanted(e, file))
        demand(e, file);
    else
        scheduler_want(e, file);
}
