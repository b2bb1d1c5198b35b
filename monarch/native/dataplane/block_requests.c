/* block_requests.c - begins the Transfers of Blocks that programs ask for, and looks at
 * partial Replicas that no Transfer looks at.
 */
#include "dataplane/demand.h"

#include "dataplane/partial.h"
#include "dataplane/staging_table.h"
#include "shared/catalog.h"

enum { CHECKED_MAX = 16 }; /* written Files that are told of in one beat */

/* begin - a File of which a program has asked for Blocks is staged from now on; false: it
 * can be staged only whole, or not at all. */
static bool begin_partly(struct engine *e, uint32_t file)
{
    struct monarch_order order;
    switch (table_begin_partly(e->table, file, &order)) {
    case VERDICT_BEGUN:
        if (partial_add(e, &order))
            return true;
        monarch_table_fail(e->table, &order, REASON_NONE, 1);
        return false;
    case VERDICT_WHOLE:
        demand(e, file);
        return false;
    default:
        return false;
    }
}

/* blocks_send - has the Blocks of an order, which are claimed, brought by the next source
 * that can be asked; false: its queue is full. */
bool blocks_send(struct engine *e, struct monarch_order *order)
{
    if (table_block_source(e->table, order) && order_push(e, order))
        return true;
    return false;
}

/* push - queues the Transfer of each run; what finds no room in a queue is asked for again
 * by the program. */
static void push(struct engine *e, uint32_t large, const struct monarch_order *whole,
                 const struct block_run *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct monarch_order order = *whole;
        order.first_block = runs[i].first;
        order.block_count = runs[i].count;
        if (!blocks_send(e, &order))
            partial_release_run(e, large, runs[i]);
    }
}

/* blocks_in - how many Blocks some runs have. */
static uint32_t blocks_in(const struct block_run *runs, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += runs[i].count;
    return sum;
}

/* blocks_requested - a program waits for Blocks of a large File, or will read them soon;
 * `unasked`: another node fills with them. */
void blocks_requested(struct engine *e, uint64_t request, bool unasked)
{
    struct block_range range = presence_range(request);
    struct block_run runs[RUNS_MAX];
    struct monarch_order whole;
    const struct presence *p = presence_of(e->flags);
    if (!e->partials || !p || range.large >= p->count)
        return;
    uint32_t file = presence_file(e->flags, range.large);
    uint32_t word = replica_load(e->catalog, file);
    atomic_store_explicit(&e->asked_ns, clock_ns(), memory_order_relaxed);
    if (STATE_OF(word) == REPLICA_ABSENT && !begin_partly(e, file))
        return;
    uint32_t n = partial_claim_runs(e, range, &whole, runs);
    if (!unasked && blocks_in(runs, n) < range.count)
        scheduler_want_blocks(e, file, range.first, range.count);
    if (!n)
        return;
    whole.kind &= MONARCH_PARTLY;
    whole.kind |= unasked ? MONARCH_BACKGROUND : MONARCH_ASKED;
    push(e, range.large, &whole, runs, n);
}

/* blocks_go_on - carries out what the threads that fetch have handed over. */
void blocks_go_on(struct engine *e)
{
    struct monarch_order order;
    while (e->partials && partial_take_handed(e, &order)) {
        struct block_run run = {order.first_block, order.block_count};
        bool come = order.tried == BLOCKS_HAVE_COME;
        if (come ? order_push(e, &order) : blocks_send(e, &order))
            continue;
        if (come)
            partial_finish_later(e, order.file);
        else
            partial_release_run(e, (uint32_t)presence_find(e->flags, order.file), run);
    }
}

/* blocks_check - with each heartbeat: Files that are not staged any more give their room
 * back, and of those that were written a Transfer tells Python. */
void blocks_check(struct engine *e)
{
    struct monarch_order orders[CHECKED_MAX];
    if (!e->partials)
        return;
    uint32_t n = partials_check(e, orders, CHECKED_MAX);
    for (uint32_t i = 0; i < n; i++)
        order_push(e, &orders[i]);
}
