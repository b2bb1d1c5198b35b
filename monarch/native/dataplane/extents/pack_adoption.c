/* pack_adoption.c - writes the indexes of segments when a job that retains its Tiers ends, and
 * adopts the segments of an earlier job.
 *
 * A frame is adopted if its index is correct, its head matches the File in the Catalog, and this
 * job decodes it by the same codec and dictionary. The checksum of its plain bytes is compared when
 * it is first decoded. Frames that are not adopted become holes.
 */
#include "dataplane/extents/packs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packed_extents.h"
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/pack_index.h"
#include "shared/catalog.h"

/* ---- the end of a job ----------------------------------------------------------------- */

struct placed { /* an entry, its segment, and the checksums of its Blocks */
    uint32_t segment;
    const uint64_t *digests;
    struct monarch_pack_entry entry;
};

static int compare(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return x->entry.offset < y->entry.offset ? -1 : x->entry.offset > y->entry.offset;
}

/* place_one - describes the frame of an Extent. */
static struct placed place_one(struct packs *p, uint32_t file, uint32_t extent)
{
    const struct frame_place *place = &p->places[packs_row(p, file, extent)];
    uint32_t tier = p->segments[place->segment - 1].tier;
    struct placed one = {
        .segment = place->segment,
        .entry = {.extent = extent,
                  .offset = place->offset,
                  .bytes = place->bytes,
                  .id = packs_id(p, tier, file)},
    };
    one.entry.plain = (uint32_t)extent_bytes(p->table->options.sizes[file], extent);
    job_frame_name(p->job, file, one.entry.name);
    return one;
}

/* list_file - lists the frames of a File that a later job may use: of a large one, those whose
 * Blocks can be compared. */
static uint64_t list_file(const struct partials *parts, uint32_t file,
                          struct placed *out)
{
    struct packs *p = parts->packs;
    bool large = table_in_part(parts->table, file);
    uint64_t row = packs_row(p, file, 0), end = packs_row(p, file + 1, 0), n = 0;
    if (table_written(parts->table, file))
        return 0;
    for (uint32_t extent = 0; row < end; row++, extent++) {
        const uint64_t *digests = large ? extent_digests(parts, file, extent) : NULL;
        if (!p->places[row].segment || (large && !digests))
            continue;
        out[n] = place_one(p, file, extent);
        out[n].digests = digests;
        out[n].entry.blocks = large ? blocks_of(out[n].entry.plain) : 0;
        n++;
    }
    return n;
}

/* list - lists all frames that a later job may use, by segment and offset. */
static uint64_t list(const struct partials *parts, struct placed *out)
{
    uint64_t n = 0;
    for (uint32_t file = 0; file < parts->job->catalog->file_count; file++)
        n += list_file(parts, file, out + n);
    qsort(out, n, sizeof(*out), compare);
    return n;
}

/* seal_one - writes the index of a segment; a segment without index is not retained. */
static void seal_one(struct pack_segment *s, const struct placed *placed, uint64_t n)
{
    struct pack_list list = {.count = n};
    for (uint64_t i = 0; i < n; i++)
        list.blocks += placed[i].entry.blocks;
    list.entries = malloc((n + 1) * sizeof(*list.entries));
    list.digests = malloc((list.blocks + 1) * sizeof(*list.digests));
    bool made = list.entries && list.digests;
    uint64_t *at = list.digests;
    for (uint64_t i = 0; made && i < n; i++) {
        list.entries[i] = placed[i].entry;
        for (uint32_t k = 0; k < placed[i].entry.blocks; k++)
            *at++ = placed[i].digests[k];
    }
    if (!made || pack_index_write(s->fd, s->bytes, &list))
        pack_room_empty(s);
    pack_list_free(&list);
}

/* pack_adoption_seal - writes the indexes of all segments; no thread uses them any more. */
void pack_adoption_seal(struct partials *parts)
{
    struct packs *p = parts->packs;
    uint64_t rows = packs_row(p, (uint32_t)p->job->catalog->file_count, 0);
    struct placed *all = malloc((rows + 1) * sizeof(*all));
    uint64_t n = all ? list(parts, all) : 0, end;
    for (uint64_t first = 0; first < n; first = end) {
        for (end = first; end < n && all[end].segment == all[first].segment;)
            end++;
        seal_one(&p->segments[all[first].segment - 1], all + first, end - first);
    }
    free(all);
}

/* ---- the beginning of the next job ------------------------------------------------------ */

struct adoption {
    struct partials *parts;
    const struct monarch_pack *pack;
    struct pack_list list;
    struct pack_segment segment;
    bool *taken; /* by entry */
};

/* read_head - reads the head of the frame of an entry; 0 if it is that of the File. */
static int read_head(const struct adoption *a, const struct monarch_pack_entry *one,
                     uint32_t file, struct packed_frame *out)
{
    struct frame_head head, expected;
    uint32_t lengths[FRAME_PIECES_MAX];
    packs_head(packs_codec(a->parts->packs, a->segment.tier, file), &expected);
    expected.plain = one->plain;
    expected.stored = one->bytes - (uint32_t)sizeof(head);
    job_frame_name(a->parts->job, file, expected.name);
    if (frame_read(a->segment.fd, one->offset, &expected, &head, lengths) <= 0)
        return -EBADMSG;
    *out = (struct packed_frame){.bytes = one->bytes, .raw = true};
    for (uint32_t i = 0; i < frame_pieces(one->plain); i++)
        out->raw &= (lengths[i] & FRAME_RAW) != 0;
    return 0;
}

/* may_adopt - the frame of an entry is one that this job would have made of the File. */
static bool may_adopt(const struct adoption *a, uint64_t number,
                      struct packed_frame *out)
{
    const struct monarch_pack_entry *one = &a->list.entries[number];
    const struct partials *parts = a->parts;
    uint32_t file = a->pack->files[number], tier = a->segment.tier;
    if (file >= parts->job->catalog->file_count)
        return false;
    uint64_t row = packs_row(parts->packs, file, one->extent);
    uint64_t size = parts->table->options.sizes[file];
    bool large = table_in_part(parts->table, file);
    if (row >= packs_row(parts->packs, file + 1, 0) ||
        parts->packs->places[row].segment || large != (one->blocks != 0) ||
        one->id != packs_id(parts->packs, tier, file) ||
        one->plain != extent_bytes(size, one->extent) ||
        !table_packs(parts->table, tier, file))
        return false;
    return read_head(a, one, file, out) == 0;
}

/* adopt_one - adopts the frame of an entry; false: it is not adopted. */
static bool adopt_one(struct adoption *a, uint64_t number, uint32_t segment,
                      const uint64_t *digests)
{
    const struct monarch_pack_entry *one = &a->list.entries[number];
    struct packs *p = a->parts->packs;
    struct packed_frame frame;
    uint32_t file = a->pack->files[number];
    if (!may_adopt(a, number, &frame))
        return false;
    uint64_t row = packs_row(p, file, one->extent);
    if (one->blocks && !extent_keep_digests(p, row, digests, one->blocks))
        return false;
    const struct monarch_order order = {.file = file,
                                        .tier = (uint16_t)a->segment.tier,
                                        .first_page = one->extent * EXTENT_PAGES};
    if (!table_adopt_packed(a->parts->table, &order, &frame))
        return false;
    p->places[row] = (struct frame_place){segment, one->offset, one->bytes};
    return true;
}

/* take - adopts frames as those of the new segment `segment` - 1; under the lock of the packs. */
static uint64_t take(struct adoption *a, uint32_t segment)
{
    const uint64_t *digests = a->list.digests;
    uint64_t found = 0;
    for (uint64_t i = 0; i < a->pack->count; i++) {
        const struct monarch_pack_entry *one = &a->list.entries[i];
        a->taken[i] = adopt_one(a, i, segment, digests);
        digests += one->blocks;
        if (!a->taken[i])
            continue;
        a->segment.held += one->bytes;
        found++;
    }
    return found;
}

/* free_rest - frees all bytes outside of adopted frames. */
static uint64_t free_rest(struct adoption *a)
{
    uint64_t at = 0, freed = 0;
    for (uint64_t i = 0; i < a->pack->count; i++) {
        const struct monarch_pack_entry *one = &a->list.entries[i];
        if (!a->taken[i])
            continue;
        if (one->offset > at)
            freed += pack_room_free_orphan(&a->segment, at, one->offset - at);
        at = (uint64_t)one->offset + one->bytes;
    }
    if (ftruncate(a->segment.fd, (off_t)at) == 0) {
        freed += a->segment.bytes - at;
        a->segment.room -= a->segment.bytes - at;
        a->segment.bytes = at;
    }
    return freed;
}

/* adopt - adopts a segment; returns the number of adopted frames, or -errno. */
static int64_t adopt(struct adoption *a)
{
    struct packs *p = a->parts->packs;
    const struct monarch_pack_entry *last = &a->list.entries[a->pack->count - 1];
    struct pack_segment *s = &a->segment;
    s->bytes = s->room = (uint64_t)last->offset + last->bytes;
    if (p->segment_count == SEGMENTS_MAX ||
        !table_take_room(a->parts->table, s->tier, s->room))
        return -ENOSPC;
    uint64_t found = take(a, p->segment_count + 1);
    uint64_t freed = found ? free_rest(a) : pack_room_empty(s);
    table_give_room(a->parts->table, s->tier, freed);
    if (found) {
        s->rounded = table_round_pack(a->parts->table, s->tier, true);
        p->segments[p->segment_count++] = *s;
    }
    return (int64_t)found;
}

/* read_entries - reads the index of a segment; 0 if it has an entry for each File of the pack. */
static int64_t read_entries(struct adoption *a)
{
    const struct monarch_pack *pack = a->pack;
    int fd = file_openat(a->parts->job->tiers[pack->tier], pack->name, O_RDWR, 0);
    a->segment = (struct pack_segment){.fd = fd, .tier = pack->tier};
    a->taken = calloc(pack->count + 1, sizeof(*a->taken));
    if (fd < 0)
        return fd;
    if (!a->taken)
        return -ENOMEM;
    int rc = pack_index_load(fd, &a->list);
    if (rc)
        return rc;
    return a->list.count && a->list.count == pack->count ? 0 : -EBADMSG;
}

/* pack_adoption_take - adopts a segment of an earlier job and returns the number of its adopted
 * frames; if that is 0, the segment is not used. -EINVAL: no such Tier, or it is not packed;
 * -ENOSPC: it has no room; -EBADMSG: the segment has no index, or another one. */
int64_t pack_adoption_take(struct partials *parts, const struct monarch_pack *pack)
{
    struct adoption a = {.parts = parts, .pack = pack};
    if (!parts->packs || pack->tier >= parts->table->options.tiers ||
        !parts->packs->tiers[pack->tier].codecs[0].given)
        return -EINVAL;
    int64_t rc = read_entries(&a);
    if (!rc) {
        pthread_mutex_lock(&parts->packs->lock);
        rc = adopt(&a);
        pthread_mutex_unlock(&parts->packs->lock);
    }
    if (rc <= 0) {
        free(a.segment.dead);
        if (a.segment.fd >= 0)
            close(a.segment.fd);
    }
    pack_list_free(&a.list);
    free(a.taken);
    return rc;
}
