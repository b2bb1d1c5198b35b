/* lru.c - finds the least recently used Replicas of a Tier.
 *
 * No order is maintained while programs open Files: a thread that needs room scans all Files once
 * and gets the oldest ones, enough for many evictions. A heap holds the oldest found so far, with
 * the youngest of them at its root.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/base/lru.h"
#include "shared/layout.h"

/* is_older - `a` is older than `b`, or as old with a lower number. */
static bool is_older(const struct monarch_lru_file *a, const struct monarch_lru_file *b)
{
    return a->age != b->age ? a->age > b->age : a->file < b->file;
}

static void exchange(struct monarch_lru_file *a, struct monarch_lru_file *b)
{
    struct monarch_lru_file kept = *a;
    *a = *b;
    *b = kept;
}

static void sift_up(struct monarch_lru_file *heap, uint32_t at)
{
    while (at && is_older(&heap[(at - 1) / 2], &heap[at])) {
        exchange(&heap[at], &heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static void sift_down(struct monarch_lru_file *heap, uint32_t count)
{
    uint32_t at = 0, next;
    while ((next = 2 * at + 1) < count) {
        if (next + 1 < count && is_older(&heap[next], &heap[next + 1]))
            next++;
        if (!is_older(&heap[at], &heap[next]))
            return;
        exchange(&heap[at], &heap[next]);
        at = next;
    }
}

static void add(struct monarch_lru_file *heap, uint32_t *count, uint32_t max,
                struct monarch_lru_file one)
{
    if (*count < max) {
        heap[*count] = one;
        sift_up(heap, (*count)++);
    } else if (is_older(&one, &heap[0])) {
        heap[0] = one;
        sift_down(heap, *count);
    }
}

/* monarch_lru_oldest - finds the READY Replicas of a Tier that were used longest ago, oldest first,
 * at most `max`, above 0; returns their number. Programs use Files meanwhile. */
uint32_t monarch_lru_oldest(const struct monarch_lru_view *view,
                            struct monarch_lru_file *out, uint32_t max)
{
    uint32_t count = 0;
    for (uint64_t file = 0; file < view->files; file++) {
        uint32_t word = atomic_load_explicit(
            (const _Atomic uint32_t *)&view->words[file], memory_order_relaxed);
        if (STATE_OF(word) != REPLICA_READY || STATE_TIER(word) != view->tier)
            continue;
        uint32_t used = atomic_load_explicit(
            (const _Atomic uint32_t *)&view->used[file], memory_order_relaxed);
        add(out, &count, max,
            (struct monarch_lru_file){(uint32_t)file, view->now - used});
    }
    for (uint32_t left = count; left > 1;) { /* move the youngest to the end */
        exchange(&out[0], &out[--left]);
        sift_down(out, left);
    }
    return count;
}
