/* hint_claims.c - Files whose hints were processed and that programs have not opened: the Pool
 * keeps them, and so they limit how far hints read ahead.
 *
 * Programs only count their opens in shared memory, so that an open costs no more. A program may
 * skip a File that it has announced: with N claims, the claim on it is given up when about 2 N
 * later ones were opened.
 */
#include "dataplane/extents/hint_claims.h"

#include <errno.h>
#include <stdlib.h>

#include "dataplane/extents/table.h"

enum {
    CLAIMS_MAX = 1 << 16,
    DUE_MAX = 100,    /* of one File: a count is one byte */
    LATER_OPENS = 64, /* slack for opens in another order */
};

struct claim { /* on a File in the Pool */
    uint64_t program, number;
    uint32_t file;
};

/* claims_init - initializes without claims; the caller calls claims_free() even after a failure. */
int claims_init(struct claims *c, uint64_t files)
{
    c->taken = calloc(files + 1, 1);
    if (!c->taken || ring_init(&c->pooled, sizeof(struct claim), CLAIMS_MAX))
        return -ENOMEM;
    return 0;
}

/* claims_free - frees the claims; no thread uses them any more. */
void claims_free(struct claims *c)
{
    free((void *)c->taken);
    ring_free(&c->pooled);
}

/* claims_due - returns the number of expected opens of a File; below 0: it was opened before its
 * hint was processed. The only function that needs no lock. */
int claims_due(const struct claims *c, uint32_t file)
{
    uint8_t taken = atomic_load_explicit(&c->taken[file], memory_order_relaxed);
    uint8_t opened = atomic_load_explicit(&c->opened[file], memory_order_relaxed);
    return (int8_t)(uint8_t)(taken - opened);
}

/* claims_absorb - ignores the opens of a File whose hints were not yet processed; true: it had
 * some. */
bool claims_absorb(struct claims *c, uint32_t file)
{
    if (claims_due(c, file) >= 0)
        return false;
    uint8_t opened = atomic_load_explicit(&c->opened[file], memory_order_relaxed);
    atomic_store_explicit(&c->taken[file], opened, memory_order_relaxed);
    return true;
}

/* claims_take - counts a processed hint: one more open of its File is expected, or has happened. */
void claims_take(struct claims *c, uint32_t file)
{
    if (claims_due(c, file) < DUE_MAX)
        atomic_fetch_add_explicit(&c->taken[file], 1, memory_order_relaxed);
}

/* claims_take_pooled - does the same for a File in the Pool, which then keeps it; false: too many
 * claims. */
bool claims_take_pooled(struct claims *c, uint32_t file, uint64_t program)
{
    struct claim one = {.program = program, .number = c->next, .file = file};
    if (!ring_push(&c->pooled, &one))
        return false;
    c->next++;
    c->bytes += footprint(c->sizes[file]);
    claims_take(c, file);
    return true;
}

static void end(struct claims *c, const struct claim *one)
{
    c->bytes -= footprint(c->sizes[one->file]);
}

/* give_up - gives up a claim: the Pool need not keep its File any more. */
static void give_up(struct claims *c, const struct claim *one)
{
    end(c, one);
    if (claims_due(c, one->file) > 0)
        atomic_fetch_sub_explicit(&c->taken[one->file], 1, memory_order_relaxed);
}

static bool is_left_out(const struct claims *c, const struct claim *one, uint32_t count)
{
    return one->number + 2 * (uint64_t)count + LATER_OPENS < c->last_open;
}

/* claims_drop - drops the claims on Files that programs have opened or skipped; true: there were
 * some. */
bool claims_drop(struct claims *c)
{
    uint32_t count = c->pooled.count;
    struct claim one;
    for (uint32_t n = 0; n < count; n++) {
        ring_pop(&c->pooled, &one);
        if (claims_due(c, one.file) <= 0) {
            if (one.number >= c->last_open)
                c->last_open = one.number + 1;
            end(c, &one);
        } else if (is_left_out(c, &one, count)) {
            give_up(c, &one);
            c->given_up++;
        } else {
            ring_push(&c->pooled, &one);
        }
    }
    return c->pooled.count < count;
}

/* claims_forget - gives up the claims of a program: it opens other Files. */
void claims_forget(struct claims *c, uint64_t program)
{
    struct claim one;
    for (uint32_t n = c->pooled.count; n; n--) {
        ring_pop(&c->pooled, &one);
        if (one.program == program)
            give_up(c, &one);
        else
            ring_push(&c->pooled, &one);
    }
}
