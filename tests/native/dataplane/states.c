/* states.c - the life of a Transfer: its whole table, and each sequence of results that
 * the steps of a Source can have. */
#include "board.h"

#include <errno.h>
#include <string.h>

#include "dataplane/transfers/transfer.h"

enum { RESULTS = 4, DEPTH = 8, LONGEST = 64, ALL_STATES = (1 << TRANSFER_STATES) - 1 };

/* ---- the table --------------------------------------------------------------------------- */

/* follow - the states reachable from some states, as bits. */
static unsigned follow(unsigned from)
{
    unsigned reached = from;
    for (unsigned s = 0; s < TRANSFER_STATES; s++)
        for (unsigned o = 0; o < OUTCOMES; o++)
            if (from & 1u << s)
                reached |= 1u << transfer_next(s, o);
    return reached == from ? from : follow(reached);
}

static void each_state_is_reached_and_can_end(void)
{
    CHECK(follow(1u << TRANSFER_CHECK) == ALL_STATES);
    for (unsigned s = 0; s < TRANSFER_STATES; s++)
        CHECK(follow(1u << s) & 1u << TRANSFER_ENDED);
    CHECK(follow(1u << TRANSFER_ENDED) == 1u << TRANSFER_ENDED);
}

/* leads - the number of pairs of another state and an outcome that lead to a state. */
static unsigned leads(enum transfer_state to)
{
    unsigned n = 0;
    for (unsigned s = 0; s < TRANSFER_STATES; s++)
        for (unsigned o = 0; o < OUTCOMES; o++)
            n += s != to && transfer_next(s, o) == to;
    return n;
}

static void nothing_is_committed_that_was_not_verified(void)
{
    CHECK(transfer_next(TRANSFER_VERIFY, OUTCOME_DONE) == TRANSFER_COMMIT);
    CHECK(leads(TRANSFER_COMMIT) == 1);
    CHECK(transfer_next(TRANSFER_WRITE, OUTCOME_DONE) == TRANSFER_VERIFY);
    CHECK(leads(TRANSFER_VERIFY) == 1);
    CHECK(leads(TRANSFER_CHECK) == 0);
}

static void every_end_ends_and_another_source_is_opened(void)
{
    for (unsigned s = 0; s < TRANSFER_ENDED; s++) {
        enum transfer_state next = transfer_next(s, OUTCOME_ELSEWHERE);
        CHECK(transfer_next(s, OUTCOME_ENDED) == TRANSFER_ENDED);
        CHECK(next == (s == TRANSFER_CHECK ? TRANSFER_ENDED : TRANSFER_OPEN));
    }
}

/* ---- sequences of results ------------------------------------------------------------------ */

/* A Source whose steps return results from a script, and after its end 0. */
static struct {
    int results[DEPTH];
    int taken, settled, committed, opened, pieces;
    bool verified, failed;
} script;

static const int RESULT[RESULTS] = {0, STEP_MORE, STEP_ELSEWHERE, -EIO};

static int take_result(struct transfers *ts, struct transfer *t, uint8_t *buffer)
{
    (void)ts, (void)buffer;
    CHECK(!script.settled && script.taken < LONGEST);
    int n = script.taken++;
    int rc = n < DEPTH ? script.results[n] : 0;
    script.opened += t->state == TRANSFER_OPEN;
    if (t->state == TRANSFER_OPEN)
        script.verified = false;
    if (t->state == TRANSFER_VERIFY)
        script.verified = rc == 0;
    if (t->state == TRANSFER_COMMIT) {
        CHECK(script.verified);
        script.committed += rc == 0;
    }
    bool goes_on = transfer_next(t->state, OUTCOME_MORE) != TRANSFER_ENDED;
    script.pieces += rc == STEP_MORE && goes_on;
    script.failed = rc < 0;
    return rc;
}

static int settle(struct transfers *ts, struct transfer *t, int rc)
{
    (void)ts, (void)t;
    script.settled++;
    CHECK(rc != STEP_ELSEWHERE || t->state == TRANSFER_ENDED);
    return rc > 0 ? -EPROTO : rc;
}

#define STEPS                                                                        \
    {                                                                                \
        take_result, take_result, take_result, take_result, take_result, take_result \
    }

static const struct route last = {.steps = STEPS, .settle = settle, .next = &last};
static const struct route first = {.steps = STEPS, .settle = settle, .next = &last};

static struct transfers *fake_transfers(void)
{
    static struct transfers ts;
    static struct root_queue root;
    ts.roots = &root;
    return &ts;
}

/* run - runs a Transfer to its end; returns the number of its yields. */
static int run(struct transfer *t, uint8_t kind)
{
    const struct monarch_order order = {.kind = kind, .peer = NO_PEER};
    int yields = 0;
    script.taken = script.settled = script.committed = script.opened = 0;
    script.pieces = 0;
    script.verified = script.failed = false;
    transfer_init(t, &order);
    t->route = &first;
    while (!transfer_run(fake_transfers(), t, NULL))
        yields++;
    return yields;
}

static void check_end(const struct transfer *t)
{
    bool committed = script.committed == 1;
    CHECK(t->state == TRANSFER_ENDED);
    CHECK(script.settled == 1);
    CHECK(committed == (t->completion.status == 0));
    CHECK(!script.failed || t->completion.status == -EIO);
    CHECK(t->route == (script.opened > 1 ? &last : &first));
}

static void each_sequence_ends_once_and_commits_only_what_was_verified(void)
{
    struct transfer t;
    long all = 1;
    for (int i = 0; i < DEPTH; i++)
        all *= RESULTS;
    for (long sequence = 0; sequence < all; sequence++) {
        long left = sequence;
        for (int i = 0; i < DEPTH; i++, left /= RESULTS)
            script.results[i] = RESULT[left % RESULTS];
        CHECK(run(&t, MONARCH_DEMAND) == 0);
        check_end(&t);
        int taken = script.taken, status = t.completion.status;
        int yields = run(&t, MONARCH_BACKGROUND);
        check_end(&t);
        CHECK(script.taken == taken && t.completion.status == status);
        CHECK(yields == script.pieces);
    }
}

static int spare(struct transfers *ts, struct transfer *t, int rc)
{
    (void)ts, (void)t;
    return rc == -EIO ? STEP_ELSEWHERE : rc;
}

static void a_source_that_fails_is_followed_by_the_next(void)
{
    static const struct route failing = {
        .steps = STEPS, .settle = spare, .next = &last};
    const struct monarch_order order = {.peer = NO_PEER};
    struct transfer t;
    for (int at = 1; at < TRANSFER_ENDED; at++) {
        memset(&script, 0, sizeof(script));
        script.results[at] = -EIO;
        transfer_init(&t, &order);
        t.route = &failing;
        CHECK(transfer_run(fake_transfers(), &t, NULL));
        CHECK(script.opened == 2 && script.committed == 1 && script.settled == 1);
        CHECK(t.completion.status == 0 && t.route == &last);
    }
}

int main(void)
{
    each_state_is_reached_and_can_end();
    nothing_is_committed_that_was_not_verified();
    every_end_ends_and_another_source_is_opened();
    each_sequence_ends_once_and_commits_only_what_was_verified();
    a_source_that_fails_is_followed_by_the_next();
    return PASS;
}
