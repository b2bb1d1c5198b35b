/* pack_segments.c - stores, finds, moves and removes frames in the pack files of packed Tiers.
 *
 * Frames are appended to a segment until it is full; it is never rewritten. The packs have the
 * place of each frame; the staging table only notes whether a File has one. A segment stays open,
 * so that reading a frame opens no file.
 */
#include "dataplane/extents/packs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/base/syscalls.h"
#include "dataplane/extents/packs_state.h"
#include "dataplane/extents/table.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/pack_index.h"
#include "shared/xxh3.h"

enum {
    SEGMENT_BYTES_MAX = PACK_BYTES_MAX,
    SEGMENT_BYTES_MIN = 16 << 20,
    SEGMENT_BYTES_LRU = 1 << 20, /* the same for a Tier that evicts */
    SEGMENT_PARTS = 16, /* a segment of a small Tier is 1/SEGMENT_PARTS of it */
    SEGMENT_NAME_BYTES = 32,
};

/* add_packing - adds a packing. -EINVAL: no such Tier or rule; -ENOSYS: the library is missing. */
static int add_packing(struct packs *p, const struct monarch_packing *one)
{
    if (one->tier >= TIERS_MAX || one->rule >= RULES_MAX)
        return -EINVAL;
    p->tiers[one->tier].codecs[one->rule] = (struct packed_codec){
        .given = true, .id = monarch_packing_id(one), .packing = *one};
    return monarch_codec_library(one->method) ? 0 : -ENOSYS;
}

/* check_rules - returns -EINVAL if a File has a rule without packing. */
static int check_rules(const struct packs *p, const struct packed_codec *codecs)
{
    const uint8_t *rules = codecs[0].packing.rules;
    for (uint64_t i = 0; rules && i < p->job->catalog->file_count; i++)
        if (rules[i] >= RULES_MAX || !codecs[rules[i]].given)
            return -EINVAL;
    return 0;
}

/* packs_new - creates the packs for the packed Tiers in the options of an engine. -EINVAL: no such
 * Tier, rule or codec; -ENOSYS: this node lacks the library of the codec. */
int packs_new(const struct job *job, struct table *table, const struct packings *how,
              struct packs **out)
{
    struct packs *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *out = p;
    p->job = job;
    p->table = table;
    pthread_mutex_init(&p->lock, NULL);
    p->places = calloc(p->table->options.first[p->job->catalog->file_count] + 1,
                       sizeof(*p->places));
    p->segments = calloc(SEGMENTS_MAX, sizeof(*p->segments));
    if (!p->places || !p->segments ||
        ring_init(&p->waiting, sizeof(struct to_pack),
                  (uint32_t)packs_row(p, (uint32_t)p->job->catalog->file_count, 0) + 1))
        return -ENOMEM;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < how->count; i++)
        rc = add_packing(p, &how->all[i]);
    for (uint32_t i = 0; !rc && i < TIERS_MAX; i++)
        rc = check_rules(p, p->tiers[i].codecs);
    return rc;
}

static void free_spare(struct packed_codec *c)
{
    while (c->spare) {
        struct spare_coder *one = c->spare;
        c->spare = one->next;
        monarch_coder_free(one->coder);
        free(one);
    }
}

/* packs_free - closes all segments; no thread uses them any more. */
void packs_free(struct packs *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; p->segments && i < p->segment_count; i++) {
        close(p->segments[i].fd);
        free(p->segments[i].dead);
    }
    for (uint32_t i = 0; i < TIERS_MAX * RULES_MAX; i++)
        free_spare(&p->tiers[i / RULES_MAX].codecs[i % RULES_MAX]);
    uint64_t rows = p->digests ? packs_row(p, (uint32_t)p->job->catalog->file_count, 0)
                               : 0;
    for (uint64_t i = 0; i < rows; i++)
        free(p->digests[i]);
    free(p->digests);
    ring_free(&p->waiting);
    free(p->segments);
    free(p->places);
    free(p);
}

/* ---- segments ----------------------------------------------------------------------- */

/* empty_segment - returns an empty segment of the Tier without pending frames, plus 1; 0: none. */
static uint32_t empty_segment(const struct packs *p, uint32_t tier)
{
    for (uint32_t i = 0; i < p->segment_count; i++) {
        const struct pack_segment *s = &p->segments[i];
        if (s->dropped && s->tier == tier && !s->bytes && !s->pending)
            return i + 1;
    }
    return 0;
}

/* create_segment - creates a file with a new name; adopted segments have such names, too. */
static int create_segment(struct packs *p, uint32_t tier)
{
    char name[SEGMENT_NAME_BYTES];
    int fd = -EEXIST;
    while (fd == -EEXIST && p->name < 10 * SEGMENTS_MAX) {
        snprintf(name, sizeof(name), "segment-%06u.pack", p->name++);
        fd = file_openat(p->job->tiers[tier], name, O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    return fd;
}

/* open_segment - begins a segment of a Tier; returns its number plus 1, or -errno. */
static int64_t open_segment(struct packs *p, uint32_t tier)
{
    uint32_t found = empty_segment(p, tier);
    if (found) {
        p->segments[found - 1].dropped = false;
        return found;
    }
    if (p->segment_count == SEGMENTS_MAX)
        return -ENOSPC;
    int fd = create_segment(p, tier);
    if (fd < 0)
        return fd;
    p->segments[p->segment_count++] = (struct pack_segment){.fd = fd, .tier = tier};
    return p->segment_count;
}

/* segment_bytes - returns the target size of a segment: memory is freed by whole segments. */
static uint64_t segment_bytes(const struct packs *p, uint32_t tier)
{
    struct monarch_account a;
    monarch_table_account(p->table, tier, &a);
    uint64_t part = a.capacity / SEGMENT_PARTS;
    uint64_t least = p->table->evicts[tier] ? SEGMENT_BYTES_LRU : SEGMENT_BYTES_MIN;
    part = part < least ? least : part;
    return part < SEGMENT_BYTES_MAX ? part : SEGMENT_BYTES_MAX;
}

/* ends - a segment is full. Its last frame may exceed the target size, so that no Tier has more
 * segments than parts of that size. */
static bool ends(const struct packs *p, const struct pack_segment *s, uint64_t bytes)
{
    return s->bytes >= segment_bytes(p, s->tier) ||
           s->bytes + bytes > SEGMENT_BYTES_MAX;
}

/* allocate - allocates bytes at the end of a segment; under the lock. */
static int allocate(struct packs *p, uint32_t tier, uint64_t bytes,
                    struct frame_place *out)
{
    struct packed_tier *t = &p->tiers[tier];
    if (!t->segment || ends(p, &p->segments[t->segment - 1], bytes)) {
        int64_t opened = open_segment(p, tier);
        if (opened < 0)
            return (int)opened;
        t->segment = (uint32_t)opened;
        p->segments[opened - 1].rounded = table_round_pack(p->table, tier, true);
    }
    struct pack_segment *s = &p->segments[t->segment - 1];
    *out = (struct frame_place){t->segment, (uint32_t)s->bytes, (uint32_t)bytes};
    s->bytes += bytes;
    s->pending++;
    return 0;
}

/* packs_empty - frees all room of a segment that is not needed any more; under the lock. */
uint64_t packs_empty(struct packs *p, uint32_t number)
{
    struct pack_segment *s = &p->segments[number - 1];
    uint64_t freed = pack_room_empty(s);
    if (p->tiers[s->tier].segment == number)
        p->tiers[s->tier].segment = 0;
    table_give_room(p->table, s->tier, freed);
    if (s->rounded)
        s->rounded = table_round_pack(p->table, s->tier, false);
    return freed;
}

/* settle - ends the write of a frame, which may have failed. */
static void settle(struct packs *p, uint32_t number)
{
    struct pack_segment *s = &p->segments[number - 1];
    s->pending--;
    if (!s->held && !s->pending)
        packs_empty(p, number);
}

/* free_orphan - frees the space of an unreferenced frame. */
static void free_orphan(struct packs *p, const struct frame_place *place)
{
    struct pack_segment *s = &p->segments[place->segment - 1];
    if (!s->dropped)
        table_give_room(p->table, s->tier,
                        pack_room_free_orphan(s, place->offset, place->bytes));
}

/* take_back - gives up a frame that could not be written: it becomes a hole, or is truncated if it
 * is the last one. The caller releases its room in the table. */
static void take_back(struct packs *p, const struct frame_place *place)
{
    struct pack_segment *s = &p->segments[place->segment - 1];
    bool last = s->bytes == (uint64_t)place->offset + place->bytes;
    if (!s->dropped && last && ftruncate(s->fd, place->offset) == 0) {
        s->bytes = place->offset;
    } else if (!s->dropped) {
        s->room += place->bytes;
        table_add_room(p->table, s->tier, place->bytes);
        free_orphan(p, place);
    }
    settle(p, place->segment);
}

/* packs_append - writes a frame behind those of its Tier; after that the caller calls packs_set()
 * or packs_move(). */
int packs_append(struct packs *p, uint32_t tier, const void *bytes, size_t n,
                 struct frame_place *out)
{
    pthread_mutex_lock(&p->lock);
    int rc = allocate(p, tier, n, out);
    int fd = rc ? -1 : p->segments[out->segment - 1].fd;
    pthread_mutex_unlock(&p->lock);
    if (rc)
        return rc;
    rc = file_write_at(fd, bytes, n, out->offset);
    if (!rc)
        return 0;
    pthread_mutex_lock(&p->lock);
    take_back(p, out);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* hold - counts a written frame; false: its segment was dropped. */
static bool hold(struct packs *p, const struct frame_place *place)
{
    struct pack_segment *s = &p->segments[place->segment - 1];
    bool kept = !s->dropped;
    s->held += kept ? place->bytes : 0;
    s->room += kept ? place->bytes : 0;
    settle(p, place->segment);
    return kept;
}

/* let_go - removes the frame of a row. */
static void let_go(struct packs *p, uint64_t row)
{
    const struct frame_place was = p->places[row];
    if (!was.segment)
        return;
    struct pack_segment *s = &p->segments[was.segment - 1];
    p->places[row] = (struct frame_place){0};
    s->held -= was.bytes;
    free_orphan(p, &was);
    if (!s->held && !s->pending)
        packs_empty(p, was.segment);
}

/* packs_row - returns the row of an Extent of a File. */
uint64_t packs_row(const struct packs *p, uint32_t file, uint32_t extent)
{
    return p->table->options.first[file] + extent;
}

/* packs_file - returns the File of a row. */
uint32_t packs_file(const struct packs *p, uint64_t row)
{
    const uint64_t *first = p->table->options.first;
    uint64_t low = 0, high = p->job->catalog->file_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(first[middle] <= row ? &low : &high) = middle;
    }
    return (uint32_t)low;
}

/* packs_set - sets the place of the frame of a row; false: the segment was dropped. */
bool packs_set(struct packs *p, uint64_t row, const struct frame_place *place)
{
    pthread_mutex_lock(&p->lock);
    bool kept = hold(p, place);
    if (kept) {
        let_go(p, row);
        p->places[row] = *place;
    }
    pthread_mutex_unlock(&p->lock);
    return kept;
}

/* packs_move - moves the frame of a row to its copy; if the row has another frame by now, or none,
 * frees the copy. False: the segment of the copy was dropped. */
bool packs_move(struct packs *p, uint64_t row, const struct frame_place *from,
                const struct frame_place *to)
{
    pthread_mutex_lock(&p->lock);
    bool moved = packs_same(&p->places[row], from), kept = hold(p, to);
    if (kept && moved) {
        let_go(p, row);
        p->places[row] = *to;
    } else if (kept) {
        p->segments[to->segment - 1].held -= to->bytes;
        free_orphan(p, to);
    }
    pthread_mutex_unlock(&p->lock);
    return kept;
}

/* is_there - a frame exists, in a Tier in service: the medium of another Tier may hang. */
static bool is_there(const struct packs *p, const struct frame_place *place)
{
    struct monarch_account a;
    if (!place->segment)
        return false;
    monarch_table_account(p->table, p->segments[place->segment - 1].tier, &a);
    return a.in_service;
}

/* packs_has - a row has such a frame. */
bool packs_has(struct packs *p, uint64_t row)
{
    pthread_mutex_lock(&p->lock);
    bool has = is_there(p, &p->places[row]);
    pthread_mutex_unlock(&p->lock);
    return has;
}

/* packs_take - finds the frame of a row; false: it has none. */
bool packs_take(struct packs *p, uint64_t row, struct unpacking *out)
{
    pthread_mutex_lock(&p->lock);
    const struct frame_place *place = &p->places[row];
    bool found = is_there(p, place);
    *out = (struct unpacking){.place = *place, .fd = -1};
    if (found) {
        out->fd = p->segments[place->segment - 1].fd;
        out->tier = p->segments[place->segment - 1].tier;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* packs_forget - removes the frame of a row. Whole free pages are freed at once, the rest of its
 * room by compaction. */
void packs_forget(struct packs *p, uint64_t row)
{
    pthread_mutex_lock(&p->lock);
    let_go(p, row);
    pthread_mutex_unlock(&p->lock);
}

/* packs_moved - the frame of a row is not where it was found: a failed read there does not concern
 * it. */
bool packs_moved(struct packs *p, uint64_t row, const struct frame_place *found)
{
    pthread_mutex_lock(&p->lock);
    bool moved = !packs_same(&p->places[row], found);
    pthread_mutex_unlock(&p->lock);
    return moved;
}

/* ---- the queue of Extents to be packed ------------------------------------------------- */

/* packs_queue - queues an Extent in the Pool to be packed; a small File is one. */
void packs_queue(struct packs *p, uint32_t file, uint32_t extent)
{
    pthread_mutex_lock(&p->lock);
    bool queued = ring_push(&p->waiting, &(struct to_pack){file, extent});
    p->waiting_extents += queued && table_in_part(p->table, file);
    pthread_mutex_unlock(&p->lock);
}

/* packs_has_pending - Extents are queued and may be packed. */
bool packs_has_pending(struct packs *p)
{
    pthread_mutex_lock(&p->lock);
    bool waits = p->waiting.count > 0 && !p->blocked;
    pthread_mutex_unlock(&p->lock);
    return waits;
}

/* packs_next - takes the Extent that has waited longest; false: none may be packed. */
bool packs_next(struct packs *p, struct to_pack *out)
{
    pthread_mutex_lock(&p->lock);
    bool found = !p->blocked && ring_pop(&p->waiting, out);
    p->waiting_extents -= found && table_in_part(p->table, out->file);
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* packs_has_pending_extents - the queue has Extents of large Files. */
bool packs_has_pending_extents(struct packs *p)
{
    pthread_mutex_lock(&p->lock);
    bool wait = p->waiting_extents > 0;
    pthread_mutex_unlock(&p->lock);
    return wait;
}

/* packs_block - stops packing until room was made for this small File, or could not be made. */
void packs_block(struct packs *p, uint32_t file)
{
    pthread_mutex_lock(&p->lock);
    p->blocked = ring_push(&p->waiting, &(struct to_pack){file, 0});
    p->blocked_by = file;
    pthread_mutex_unlock(&p->lock);
}

/* packs_blocked - a File waits for room; false: none. */
bool packs_blocked(struct packs *p, uint32_t *file)
{
    pthread_mutex_lock(&p->lock);
    bool blocked = p->blocked;
    *file = p->blocked_by;
    pthread_mutex_unlock(&p->lock);
    return blocked;
}

/* packs_unblock - resumes packing. */
void packs_unblock(struct packs *p)
{
    pthread_mutex_lock(&p->lock);
    p->blocked = false;
    pthread_mutex_unlock(&p->lock);
}
