/* large_open.c - whether the open of a File that is not staged yet waits for it, though it may
 * be large.
 *
 * Reads by streams are not seen, nor mappings by a system call of the program's own: bytes that are
 * not local at the open would be read from the origin as long as the program keeps the descriptor.
 * So an open by fopen(), or of a File that the user has named, waits until the File is staged
 * whole.
 *
 * A File above cold_open.wait_max_whole is left to the origin without a request to copy it:
 * a mapping may need a small part of it only, and a copy of all of it would take the
 * bandwidth that these reads need. Background fill copies it in its turn.
 */
#include "shim/serving/large_open.h"

#include "shim/base/process.h"
#include "shim/names/wait.h"

/* is_small - every open waits for a File of this size; with COLD_THROUGH, no open waits for any. */
static bool is_small(const struct catalog *c, uint64_t size)
{
    return c->cold_mode == COLD_WAIT ||
           (c->cold_mode == COLD_AUTO && size <= c->cold_wait_max_bytes);
}

/* is_flagged - the user has set that opens wait, or the File was mapped at the origin. The offset
 * is checked, because programs can write to this segment. */
static bool is_flagged(const struct redirect *s)
{
    const struct flags *f = s->seg->flags;
    uint64_t place = f->whole + s->file;
    if (!f->whole || place < s->file || place >= f->seg.length)
        return false;
    return atomic_load_explicit((const _Atomic uint8_t *)f + place,
                                memory_order_relaxed) >= WHOLE_NAMED;
}

/* is_read_unseen - the program's reads of the large File will not be seen. */
static bool is_read_unseen(const struct redirect *s)
{
    return s->seg->catalog->cold_mode == COLD_AUTO && (s->streamed || is_flagged(s));
}

/* pass - sends an open that does not wait to the origin; the File is copied meanwhile,
 * unless its reads are served. */
static bool pass(const struct redirect *s, uint32_t word, enum counter *why)
{
    *why = COUNTER_origin_large;
    if (!s->large && wait_agent_lives(s->seg) && STATE_OF(word) == REPLICA_ABSENT)
        wait_request(s->seg, s->file);
    return false;
}

/* large_open_waits - whether the open of a File with this state word waits for it, or else
 * why it goes to the origin. */
bool large_open_waits(struct redirect *s, uint32_t word, enum counter *why)
{
    const struct catalog *c = s->seg->catalog;
    bool small = is_small(c, s->size);
    s->large = !small && presence_find(s->seg->flags, s->file) >= 0;
    if (!small && !is_read_unseen(s))
        return pass(s, word, why);
    *why = COUNTER_origin_whole;
    if (!small && s->size > c->cold_wait_max_whole_bytes)
        return false;
    *why = COUNTER_origin_vfork;
    if (process_borrowed())
        return false;
    if (!small && !s->whole)
        count(COUNTER_whole_waits, 1);
    s->whole = !small;
    return true;
}
