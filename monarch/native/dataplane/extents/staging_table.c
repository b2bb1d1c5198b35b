/* staging_table.c - selects the Tier and the Source of each requested File, and reserves its room,
 * without Python.
 *
 * Python writes the rows, one per Extent; a File of several Extents uses its first row. It also
 * sets the capacity of each Tier, from which room is reserved here, and the peers that may be
 * asked. A Transfer begins with a compare-and-swap of the state word to STAGING, so that each File
 * has one at most; its generation is that of the word. An order whose generation has passed is
 * dropped instead of published.
 */
#include "dataplane/extents/table.h"

#include <errno.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/replica_state.h"

/* How long programs read the origin if a File finds no room just now. */
static const uint64_t BUSY_NS = SECOND_NS / 10;

static uint64_t need_of(const struct table *t, uint32_t file)
{
    return footprint(t->options.sizes[file]);
}

static uint32_t load_word(const struct table *t, uint32_t file)
{
    return atomic_load_explicit(&t->words[file], memory_order_acquire);
}

/* table_uses_pool - Files without room in any Tier go through the Pool, for every requester. */
bool table_uses_pool(struct table *t)
{
    pthread_mutex_lock(&t->lock);
    bool uses = t->uses_pool;
    pthread_mutex_unlock(&t->lock);
    return uses;
}

/* ---- the beginning of a Transfer --------------------------------------------------- */

/* POOL_FULL - a program waits for a File that has to go into the Pool, which has no room.
 * MAKES_ROOM - Replicas can be evicted from a Tier for it. */
enum { NO_TIER = -1, POOL_FULL = -2, MAKES_ROOM = -3 };

/* plain_first - reserves room in the Pool for a File of a packed Tier that a program waits for or
 * will open: the program reads the plain bytes there, and the File is packed later. */
static int plain_first(struct table *t, const struct monarch_order *order, int tier)
{
    uint32_t file = order->file;
    table_set_promised(t, file, table_kept_need(t, file) > 0);
    int pool = NO_TIER;
    if (table_due_fits(t, need_of(t, file)))
        pool = table_reserve_pool(t, need_of(t, file),
                                  order->kind & MONARCH_BACKGROUND);
    if (pool < 0)
        return POOL_FULL;
    table_set_due(t, file, (uint32_t)tier);
    return pool;
}

/* wants_plain - the File is not requested by fill. */
static bool wants_plain(const struct monarch_order *order)
{
    return (order->kind & MONARCH_HINT) || !(order->kind & MONARCH_BACKGROUND);
}

/* reserve - reserves room; returns the Tier, the Pool, NO_TIER, POOL_FULL or MAKES_ROOM. */
static int reserve(struct table *t, uint32_t file, const struct monarch_order *order,
                   const struct monarch_table_row *row)
{
    uint64_t need = need_of(t, file);
    int tier = NO_TIER;
    bool makes = table_makes_room(t, order, row->destination);
    if (row->destination == DESTINATION_TIER || makes) {
        table_set_promised(t, file, false);
        tier = table_reserve_file(t, file);
    } else if ((order->peer == NO_PEER || row->destination == DESTINATION_SPARE) &&
               (int64_t)need <= table_spare_bytes(t)) {
        tier = table_reserve_file(t, file);
    }
    bool plain = wants_plain(order);
    if (plain && tier >= 0 && table_packs(t, (uint32_t)tier, file)) {
        table_release(t, (uint32_t)tier, table_need(t, (uint32_t)tier, file));
        return plain_first(t, order, tier);
    }
    int packed = NO_TIER;
    if (plain && tier < 0 && row->destination == DESTINATION_TIER)
        packed = table_crowded_tier(t, file);
    if (plain && makes && tier < 0 && packed < 0)
        packed = table_evicting_pack(t, file);
    if (packed >= 0)
        return plain_first(t, order, packed);
    bool asked = (order->kind & MONARCH_ASKED) && t->uses_pool;
    if (tier >= 0 || !(asked || makes || (order->kind & MONARCH_HINT)))
        return tier;
    if (makes)
        return MAKES_ROOM;
    return table_reserve_pool(t, need, table_yields(t, file, order->kind));
}

static void count_begun(struct table *t, const struct monarch_order *order,
                        const struct monarch_table_row *row)
{
    bool foreign = row->sources[0] != NO_SOURCE &&
                   !(order->kind & (MONARCH_ADOPT | MONARCH_LOCAL));
    if (!table_in_blocks(t, order)) /* else each Transfer counts, see table_busy() */
        table_count_busy(t);
    if (order->kind & MONARCH_BACKGROUND)
        t->tally.background_transfers++;
    else
        t->tally.demand_transfers++;
    if (order->kind & MONARCH_HINT) {
        t->tally.hinted_files++;
        t->tally.hinted_bytes += t->options.sizes[order->file];
    }
    if (foreign && table_in_blocks(t, order))
        return; /* each Extent has its own source */
    if (foreign && order->peer == NO_PEER)
        t->tally.origin_instead_files++;
    else if (foreign)
        t->tally.rehomed_files += order->peer != row->sources[0];
}

/* begin_word - changes ABSENT to STAGING; false: another thread was faster. */
static bool begin_word(struct table *t, struct monarch_order *order, uint32_t seen)
{
    uint32_t next = STATE_BEGIN(seen, order->tier);
    order->word = next;
    return replica_state_change(t->words, order->file, &seen, next, false);
}

static void refuse_word(struct table *t, uint32_t file, uint32_t seen, uint32_t reason)
{
    replica_state_change(t->words, file, &seen,
                         STATE_NEXT(seen, REPLICA_ABSENT, 0, reason), true);
}

/* table_refuse - sends programs to the origin for a File that is absent. */
void table_refuse(struct table *t, uint32_t file, uint32_t reason)
{
    uint32_t seen = load_word(t, file);
    if (STATE_OF(seen) == REPLICA_ABSENT && STATE_REASON(seen) == REASON_NONE)
        refuse_word(t, file, seen, reason);
}

/* table_refuse_busy - sends programs to the origin for a while: a File finds no room just now.
 * `refused` holds struct refused; if it is full, programs ask again at once. */
void table_refuse_busy(struct table *t, struct ring *refused, uint32_t file)
{
    const struct refused one = {file, clock_ns() + BUSY_NS};
    if (refused->count == refused->capacity)
        return;
    table_refuse(t, file, REASON_BUSY);
    ring_push(refused, &one);
}

/* table_end_busy - lets programs request Files again that were refused long enough. */
void table_end_busy(struct table *t, struct ring *refused)
{
    const struct monarch_rule again = {
        .mask = STATE_FIXED,
        .from = STATE_WORD(REPLICA_ABSENT, 0, REASON_BUSY),
        .to = STATE_WORD(REPLICA_ABSENT, 0, REASON_NONE),
    };
    const struct refused *first;
    struct refused one;
    uint64_t now = clock_ns();
    while ((first = ring_peek(refused)) && first->until_ns <= now) {
        ring_pop(refused, &one);
        uint64_t file = one.file;
        if (monarch_states_change(t->options.words, &file, 1, &again))
            table_count_again(t, one.file);
    }
}

/* is_crowded_out - a File that is to be kept has no room while frames in flight hold some: fill
 * tries it again. */
static bool is_crowded_out(struct table *t, uint32_t file)
{
    const struct monarch_table_row *row = &t->rows[t->options.first[file]];
    if (row->destination != DESTINATION_TIER || table_crowded_tier(t, file) < 0)
        return false;
    t->tally.crowded++;
    table_set_promised(t, file,
                       !table_is_packed(t, file) && table_kept_need(t, file) > 0);
    return true;
}

static enum monarch_verdict no_room(struct table *t, const struct monarch_order *order,
                                    uint32_t seen)
{
    bool asked = order->kind & MONARCH_ASKED;
    uint32_t file = order->file;
    if (order->kind & MONARCH_HINT)
        return VERDICT_POOL;
    if (!asked && table_can_evict(t, file)) /* programs may still have it staged */
        return VERDICT_PASSED;
    if ((!asked || order->kind & MONARCH_BACKGROUND) && is_crowded_out(t, file))
        return VERDICT_PASSED;
    const struct monarch_account *pool = &t->accounts[t->options.tiers];
    bool pooled = pool->in_service && need_of(t, file) <= pool->capacity;
    if (!t->uses_pool || (asked && !pooled)) {
        refuse_word(t, file, seen, REASON_NO_ROOM);
        return VERDICT_NOTHING;
    }
    return asked && !table_yields(t, file, order->kind) ? VERDICT_POOL : VERDICT_PASSED;
}

/* begin_adoption - begins to verify a Replica of an earlier job, whose room is reserved. */
static enum monarch_verdict begin_adoption(struct table *t, struct monarch_order *order,
                                           uint32_t seen)
{
    uint32_t file = order->file;
    order->kind |= MONARCH_ADOPT;
    order->tier = t->offers[file] - 1;
    if (!begin_word(t, order, seen))
        return VERDICT_NOTHING;
    t->offers[file] = 0;
    t->tally.offered--;
    count_begun(t, order, &t->rows[t->options.first[file]]);
    return VERDICT_BEGUN;
}

/* may_begin - a File may be staged in this state; by a hint also if no Tier had room. */
static bool may_begin(uint32_t seen, uint32_t kind)
{
    if (STATE_OF(seen) != REPLICA_ABSENT)
        return false;
    return STATE_REASON(seen) == REASON_NONE ||
           (STATE_REASON(seen) == REASON_NO_ROOM && (kind & MONARCH_HINT));
}

/* begin_reserved - begins a File whose room is reserved; frees the room if another thread was
 * faster. */
static enum monarch_verdict begin_reserved(struct table *t, struct monarch_order *order,
                                           uint32_t seen)
{
    uint32_t file = order->file;
    const struct monarch_table_row *row = &t->rows[t->options.first[file]];
    if (begin_word(t, order, seen)) {
        count_begun(t, order, row);
        return VERDICT_BEGUN;
    }
    table_give_up(t, order);
    table_set_promised(t, file,
                       !table_is_packed(t, file) && table_kept_need(t, file) > 0);
    return VERDICT_NOTHING;
}

/* begin_large - begins a large File, which is staged by its Blocks. */
static enum monarch_verdict begin_large(struct table *t, struct monarch_order *order,
                                        uint32_t seen)
{
    int verdict = table_large_verdict(t, order);
    if (verdict != VERDICT_BEGUN)
        return (enum monarch_verdict)verdict;
    int tier = table_reserve_large(t, order);
    order->peer = NO_PEER;
    if (tier < 0) {
        refuse_word(t, order->file, seen, REASON_NO_ROOM);
        return VERDICT_NOTHING;
    }
    if (!(order->kind & MONARCH_PARTLY) && table_in_pieces(t, order->file))
        order->kind = MONARCH_BACKGROUND; /* programs do not wait for all of it */
    order->tier = (uint16_t)tier;
    return begin_reserved(t, order, seen);
}

/* table_begin_partly - begins a large File of which a program requests Blocks, without an order to
 * copy all of it; returns an enum monarch_verdict. */
int table_begin_partly(struct table *t, uint32_t file, struct monarch_order *out)
{
    uint32_t seen = load_word(t, file);
    if (!may_begin(seen, 0) || table_written(t, file) ||
        atomic_load_explicit(&t->stopping, memory_order_relaxed))
        return VERDICT_NOTHING;
    *out = (struct monarch_order){
        .file = file, .kind = MONARCH_PARTLY, .peer = NO_PEER};
    pthread_mutex_lock(&t->lock);
    enum monarch_verdict verdict = t->offers[file] ? VERDICT_WHOLE
                                                   : begin_large(t, out, seen);
    pthread_mutex_unlock(&t->lock);
    return verdict;
}

/* begin_unpacking - begins to decode a packed File into the Pool. For fill it does nothing. */
static enum monarch_verdict begin_unpacking(struct table *t,
                                            struct monarch_order *order, uint32_t seen)
{
    uint32_t file = order->file;
    bool yields = table_yields(t, file, order->kind);
    if (!(order->kind & (MONARCH_ASKED | MONARCH_HINT)))
        return VERDICT_NOTHING;
    int pool = table_reserve_pool(t, need_of(t, file), yields);
    if (pool < 0)
        return yields ? VERDICT_PASSED : VERDICT_POOL;
    order->kind |= MONARCH_LOCAL;
    order->tier = (uint16_t)pool;
    return begin_reserved(t, order, seen);
}

/* begin - begins a File that was seen absent; under the lock. */
static enum monarch_verdict begin(struct table *t, struct monarch_order *order,
                                  uint32_t seen)
{
    uint32_t file = order->file;
    const struct monarch_table_row *row = &t->rows[t->options.first[file]];
    bool asked = order->kind & MONARCH_ASKED;
    bool elsewhere = row->destination == DESTINATION_NOWHERE;
    bool nowhere = elsewhere && !table_makes_room(t, order, row->destination);
    if (t->offers[file])
        return begin_adoption(t, order, seen);
    if (table_in_part(t, file))
        return begin_large(t, order, seen);
    if (table_is_packed(t, file))
        return begin_unpacking(t, order, seen);
    if (nowhere && !asked && table_can_evict(t, file))
        return VERDICT_PASSED;
    if (nowhere && !(order->kind & MONARCH_HINT)) {
        refuse_word(t, file, seen, REASON_NO_ROOM);
        return VERDICT_NOTHING;
    }
    if (!asked && !elsewhere && !table_may_fill(t, row, 0)) {
        t->tally.passed_over++;
        return VERDICT_PASSED;
    }
    order->peer = elsewhere ? NO_PEER : table_choose_source(t, row);
    int tier = reserve(t, file, order, row);
    if (tier == POOL_FULL)
        return VERDICT_POOL;
    if (tier == MAKES_ROOM)
        return VERDICT_EVICT;
    if (tier < 0)
        return no_room(t, order, seen);
    order->tier = (uint16_t)tier;
    return begin_reserved(t, order, seen);
}

/* monarch_table_begin - begins the Transfer of a requested File, if it is absent and has room;
 * returns an enum monarch_verdict. Sets MONARCH_BACKGROUND in the kind if no program waits for a
 * File because it is large. */
int monarch_table_begin(struct table *t, uint32_t file, uint32_t kind,
                        struct monarch_order *out)
{
    uint32_t seen = load_word(t, file);
    if (STATE_OF(seen) == REPLICA_READY)
        return VERDICT_READY;
    if (!may_begin(seen, kind) ||
        atomic_load_explicit(&t->stopping, memory_order_relaxed))
        return VERDICT_NOTHING;
    if (table_written(t, file)) {
        refuse_word(t, file, seen, REASON_CHANGED);
        return t->offers[file] ? VERDICT_WRITTEN : VERDICT_NOTHING;
    }
    if (table_yields(t, file, kind))
        kind |= MONARCH_BACKGROUND;
    *out = (struct monarch_order){.file = file, .kind = (uint8_t)kind, .peer = NO_PEER};
    pthread_mutex_lock(&t->lock);
    enum monarch_verdict verdict = begin(t, out, seen);
    pthread_mutex_unlock(&t->lock);
    return verdict;
}

/* is_staging - a state word belongs to this Transfer. */
static bool is_staging(const struct monarch_order *order, uint32_t seen)
{
    return STATE_OF(seen) == REPLICA_STAGING &&
           (seen & STATE_GENERATION) == (order->word & STATE_GENERATION);
}

/* move_word - changes the Tier in the state word of a Transfer; false: the generation of the order
 * has passed. */
static bool move_word(struct table *t, const struct monarch_order *order, uint32_t tier)
{
    uint32_t seen = load_word(t, order->file);
    while (is_staging(order, seen))
        if (replica_state_change(
                t->words, order->file, &seen,
                STATE_NEXT(seen, REPLICA_STAGING, tier, STATE_REASON(seen)), false))
            return true;
    return false;
}

/* monarch_table_move - moves a Transfer from the Pool to a Tier, if that has spare room: this node
 * also keeps what it reads from the origin. 1: it has moved. */
int monarch_table_move(struct table *t, struct monarch_order *order)
{
    uint64_t need = need_of(t, order->file);
    pthread_mutex_lock(&t->lock);
    int tier = table_reserve_spare(t, need);
    if (tier >= 0 && t->ratios[tier]) { /* it is packed from the Pool later */
        table_release(t, (uint32_t)tier, need);
        if (table_packs(t, (uint32_t)tier, order->file))
            table_set_due(t, order->file, (uint32_t)tier);
        tier = NO_TIER;
    }
    bool moved = tier >= 0 && move_word(t, order, (uint32_t)tier);
    if (tier >= 0)
        table_release(t, moved ? order->tier : (uint32_t)tier, need);
    if (moved)
        order->tier = (uint16_t)tier;
    pthread_mutex_unlock(&t->lock);
    return moved;
}
