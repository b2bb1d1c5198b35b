/* transfer_run.c - runs Transfers: chooses their Source, and moves them from state to state. */
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"

/* An outcome that a state cannot have ends the Transfer. */
static const enum transfer_state TRANSITIONS[TRANSFER_STATES][OUTCOMES] = {
    /*                   DONE             MORE            ELSEWHERE       ENDED */
    [TRANSFER_CHECK] = {TRANSFER_OPEN, TRANSFER_ENDED, TRANSFER_ENDED, TRANSFER_ENDED},
    [TRANSFER_OPEN] = {TRANSFER_BRING, TRANSFER_ENDED, TRANSFER_OPEN, TRANSFER_ENDED},
    [TRANSFER_BRING] = {TRANSFER_WRITE, TRANSFER_BRING, TRANSFER_OPEN, TRANSFER_ENDED},
    [TRANSFER_WRITE] = {TRANSFER_VERIFY, TRANSFER_BRING, TRANSFER_OPEN, TRANSFER_ENDED},
    [TRANSFER_VERIFY] = {TRANSFER_COMMIT, TRANSFER_BRING, TRANSFER_OPEN,
                         TRANSFER_ENDED},
    [TRANSFER_COMMIT] = {TRANSFER_ENDED, TRANSFER_ENDED, TRANSFER_OPEN, TRANSFER_ENDED},
    [TRANSFER_ENDED] = {TRANSFER_ENDED, TRANSFER_ENDED, TRANSFER_ENDED, TRANSFER_ENDED},
};

/* transfer_next - returns the state that follows a state with this outcome. */
enum transfer_state transfer_next(enum transfer_state state,
                                  enum transfer_outcome outcome)
{
    return TRANSITIONS[state][outcome];
}

/* choose_route - returns the first Source to try for an order. */
static const struct route *choose_route(const struct transfers *ts,
                                        const struct transfer *t)
{
    bool into_pool = ts->table && table_is_pool(ts->table, t->order.tier);
    if (transfer_defers(t))
        return &route_came;
    if (transfer_repacks(t) && t->order.page_count)
        return into_pool ? &route_extent_frame : &route_extent_pool;
    if (transfer_repacks(t))
        return into_pool ? &route_frame : &route_pool;
    if (partial_applies(ts->partials, &t->order))
        return ts->unasked.pages;
    return transfer_adopts(t) ? &route_retained : &route_sibling;
}

static enum transfer_outcome outcome_of(int rc)
{
    switch (rc) {
    case 0:
        return OUTCOME_DONE;
    case STEP_MORE:
        return OUTCOME_MORE;
    case STEP_ELSEWHERE:
        return OUTCOME_ELSEWHERE;
    default:
        return OUTCOME_ENDED;
    }
}

/* settle - ends a Transfer, unless its Source names another one to try. */
static int settle(struct transfers *ts, struct transfer *t, int rc)
{
    if (t->route->settle)
        rc = t->route->settle(ts, t, rc);
    if (rc != STEP_ELSEWHERE)
        t->state = TRANSFER_ENDED;
    return rc;
}

/* advance - runs one step; returns its result, or at the end that of the Transfer. */
static int advance(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    transfer_step *step = t->route->steps[t->state];
    enum transfer_state before = t->state;
    int rc = step ? step(ts, t, buffer) : 0;
    if (step)
        health_note_step(ts, t);
    t->state = transfer_next(before, outcome_of(rc));
    if (t->state == TRANSFER_ENDED)
        rc = settle(ts, t, rc);
    if (rc == STEP_ELSEWHERE) {
        t->state = transfer_next(before, OUTCOME_ELSEWHERE);
        t->route = t->route->next;
    }
    return rc;
}

static bool yields(const struct transfer *t, int rc)
{
    return rc == STEP_MORE && order_class(t->order.kind) == CLASS_BACKGROUND &&
           !t->turn.hurried;
}

/* transfer_run - continues a Transfer, with a buffer of TRANSFER_BUFFER_BYTES; true when it has
 * ended. A background Transfer returns after each piece to yield to others. */
bool transfer_run(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    uint64_t began = clock_ns();
    int rc;
    if (!t->route)
        t->route = choose_route(ts, t);
    do {
        rc = advance(ts, t, buffer);
    } while (t->state != TRANSFER_ENDED && !yields(t, rc));
    t->spent.ns += clock_ns() - began;
    if (t->partial)
        partial_return(t);
    if (t->state == TRANSFER_ENDED)
        transfer_end(t, rc);
    return t->state == TRANSFER_ENDED;
}
