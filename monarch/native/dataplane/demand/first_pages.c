/* first_pages.c - what the first bytes of a large File tell: whether its readers map it, and
 * what they want next. Nothing is parsed.
 *
 * Of formats that are usually mapped the agent flags the names that it knows before programs
 * start; a File of another name is flagged here, for the opens that follow.
 *
 * An HDF5 file has tables near its begin, those that were made last at its end, and its readers
 * go from one to the next: each would be a round trip of its own. At most four Blocks more are
 * read. Nothing is gained for parquet: its readers begin with the footer, and what lies before
 * it in the last MiB is mostly not read next.
 */
#include "dataplane/extents/partial.h"

#include <string.h>

#include "dataplane/demand/demand.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"

enum { HEAD_PAGES = CHUNK_BYTES / PAGE_BYTES };

struct magic { /* bytes of a file by which its format is recognised */
    size_t at, count;
    char bytes[8];
};

static const struct magic HDF5 = {0, 8, "\x89HDF\r\n\x1a\n"};
static const struct magic MAPPED[] = {
    {0, 6, "\x93NUMPY"},
    {0, 6, "ARROW1"},
    {4, 6, "\0\0\0\0{\""},       /* safetensors: the length of a JSON text, and that */
    {16, 4, "\xde\xc0\xef\xbe"}, /* LMDB */
};

static bool has(const uint8_t *bytes, const struct magic *magic)
{
    return memcmp(bytes + magic->at, magic->bytes, magic->count) == 0;
}

static bool is_mapped_format(const uint8_t *bytes)
{
    for (size_t i = 0; i < sizeof(MAPPED) / sizeof(MAPPED[0]); i++)
        if (has(bytes, &MAPPED[i]))
            return true;
    return false;
}

/* flag_whole - lets programs wait for the File; one that is too large for that is served in
 * Pages as before. */
static void flag_whole(struct demand *d, const struct transfer *t)
{
    struct flags *f = d->job->flags;
    _Atomic uint8_t *whole = (_Atomic uint8_t *)f + f->whole;
    uint8_t none = 0;
    if (f->whole && t->original.size <= d->job->catalog->cold_wait_max_whole_bytes)
        atomic_compare_exchange_strong(&whole[t->order.file], &none, WHOLE_EXPECTED);
}

/* first_bytes_came - the first Page of a File has come, and no program has seen it yet. */
void first_bytes_came(struct demand *d, const struct transfer *t, const uint8_t *bytes)
{
    if (is_mapped_format(bytes))
        flag_whole(d, t);
}

/* first_pages - which Pages programs want next that have requested the first Page of a File,
 * as far as this node reads them from the origin; returns the number of ranges. */
uint32_t first_pages(const struct demand *d, const struct transfer *t,
                     const uint8_t *bytes, struct page_range out[FIRST_RANGES_MAX])
{
    const uint32_t pages = t->partial->pages, large = t->partial->large;
    const uint32_t last = (pages - 1) / BLOCK_PAGES * BLOCK_PAGES;
    const struct page_range wanted[] = {{large, last, pages - last},
                                        {large, 1, HEAD_PAGES - 1}};
    bool asked = t->order.page_count && order_class(t->order.kind) == CLASS_DEMAND;
    uint32_t n = 0;
    if (!asked || !has(bytes, &HDF5))
        return 0;
    for (size_t i = 0; i < FIRST_RANGES_MAX; i++) {
        struct monarch_order order = {.file = t->order.file,
                                      .first_page = wanted[i].first};
        if (table_page_source(d->table, &order) && order.peer == NO_PEER)
            out[n++] = wanted[i];
    }
    return n;
}
