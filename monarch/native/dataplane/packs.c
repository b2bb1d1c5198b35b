/* packs.c - the pack files of packed Tiers.
 *
 * A segment is appended to until it is full, and never rewritten. Where a frame stands is
 * known here only; whether a File has one, the staging table says. A segment stays open, so
 * that reading a frame opens nothing.
 */
#include "dataplane/packs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/codec.h"
#include "dataplane/engine.h"
#include "dataplane/staging_table.h"
#include "dataplane/syscalls.h"
#include "shared/xxh3.h"

enum {
    SEGMENT_BYTES_MAX = 256 << 20,
    SEGMENT_BYTES_MIN = 16 << 20,
    SEGMENT_PARTS = 16, /* of a small Tier, a segment is one part of so many */
    SEGMENTS_MAX = 1 << 14,
    WAITING_MAX = 1 << 16, /* Files in the Pool that are to be packed */
    RULES_MAX = 16,
};

struct pack_segment {
    int fd;
    uint32_t tier;
    uint64_t bytes; /* where the next frame goes */
    uint64_t held;  /* of frames that Files have */
    bool dropped;
};

struct spare_coder {
    struct spare_coder *next;
    struct coder *coder;
};

struct packed_codec {
    bool given;
    uint32_t id;
    struct monarch_packing packing;
    struct spare_coder *spare;
};

struct packed_tier {
    struct packed_codec codecs[RULES_MAX]; /* by rule; of a packed Tier only */
    uint32_t segment; /* the one that is appended to, plus 1; 0: none */
};

struct packs {
    struct engine *engine;
    pthread_mutex_t lock; /* guards the rest; before that of the table */
    struct packed_tier tiers[TIERS_MAX];
    struct pack_segment *segments;
    uint32_t segment_count;
    struct frame_place *places; /* per row of the staging table */
    struct ring waiting;        /* numbers of Files */
};

/* id_of - the same for codecs that decode each other's frames, on all nodes; never 0. */
static uint32_t id_of(const struct monarch_packing *k)
{
    const uint32_t how[] = {k->method, k->shuffle};
    uint64_t dictionary = 0;
    if (k->dictionary_bytes)
        dictionary = xxh3(k->dictionary, k->dictionary_bytes, 0);
    return (uint32_t)xxh3(how, sizeof(how), dictionary) | 1;
}

/* add_packing - -EINVAL: there is no such Tier or rule; -ENOSYS: there is no library. */
static int add_packing(struct packs *p, const struct monarch_packing *one)
{
    if (one->tier >= TIERS_MAX || one->rule >= RULES_MAX)
        return -EINVAL;
    p->tiers[one->tier].codecs[one->rule] = (struct packed_codec){
        .given = true, .id = id_of(one), .packing = *one};
    return monarch_codec_library(one->method) ? 0 : -ENOSYS;
}

/* check_rules - -EINVAL: a File has a rule that no packing is for. */
static int check_rules(const struct packs *p, const struct packed_codec *codecs)
{
    const uint8_t *rules = codecs[0].packing.rules;
    for (uint64_t i = 0; rules && i < p->engine->catalog->file_count; i++)
        if (rules[i] >= RULES_MAX || !codecs[rules[i]].given)
            return -EINVAL;
    return 0;
}

/* packs_new - for an engine whose options say which Tiers are packed. -EINVAL: there is no
 * such Tier, rule or codec; -ENOSYS: this node has not the library of the codec. */
int packs_new(struct engine *e, struct packs **out)
{
    struct packs *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *out = p;
    p->engine = e;
    pthread_mutex_init(&p->lock, NULL);
    p->places = calloc(e->table->options.first[e->catalog->file_count] + 1,
                       sizeof(*p->places));
    p->segments = calloc(SEGMENTS_MAX, sizeof(*p->segments));
    if (!p->places || !p->segments ||
        ring_init(&p->waiting, sizeof(uint32_t), WAITING_MAX))
        return -ENOMEM;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < e->options.packing_count; i++)
        rc = add_packing(p, &e->options.packings[i]);
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
    for (uint32_t i = 0; p->segments && i < p->segment_count; i++)
        close(p->segments[i].fd);
    for (uint32_t i = 0; i < TIERS_MAX * RULES_MAX; i++)
        free_spare(&p->tiers[i / RULES_MAX].codecs[i % RULES_MAX]);
    ring_free(&p->waiting);
    free(p->segments);
    free(p->places);
    free(p);
}

/* ---- coders ------------------------------------------------------------------------- */

static struct coder *new_coder(const struct monarch_packing *k)
{
    struct coder *coder;
    if (monarch_coder_new(k->method, k->level, k->shuffle, &coder))
        return NULL;
    if (!k->dictionary_bytes ||
        !monarch_coder_learn(coder, k->dictionary, k->dictionary_bytes))
        return coder;
    monarch_coder_free(coder);
    return NULL;
}

/* packs_codec - the codec of a File in a Tier. */
struct packed_codec *packs_codec(struct packs *p, uint32_t tier, uint32_t file)
{
    struct packed_codec *codecs = p->tiers[tier].codecs;
    const uint8_t *rules = codecs[0].packing.rules;
    return &codecs[rules ? rules[file] : 0];
}

/* packs_id - by which a peer knows whether it can decode the frame of a File in a Tier. */
uint32_t packs_id(struct packs *p, uint32_t tier, uint32_t file)
{
    return packs_codec(p, tier, file)->id;
}

/* packs_coder - a coder with this codec, until packs_coder_back(); NULL: there is no memory
 * for it. */
struct coder *packs_coder(struct packs *p, struct packed_codec *codec)
{
    pthread_mutex_lock(&p->lock);
    struct spare_coder *one = codec->spare;
    if (one)
        codec->spare = one->next;
    pthread_mutex_unlock(&p->lock);
    if (!one)
        return new_coder(&codec->packing);
    struct coder *coder = one->coder;
    free(one);
    return coder;
}

/* packs_coder_back - keeps the coder for the next one who needs it. */
void packs_coder_back(struct packs *p, struct packed_codec *codec, struct coder *coder)
{
    struct spare_coder *one = coder ? malloc(sizeof(*one)) : NULL;
    if (!one) {
        monarch_coder_free(coder);
        return;
    }
    one->coder = coder;
    pthread_mutex_lock(&p->lock);
    one->next = codec->spare;
    codec->spare = one;
    pthread_mutex_unlock(&p->lock);
}

/* packs_head - a head with this codec. */
void packs_head(const struct packed_codec *codec, struct frame_head *out)
{
    const struct monarch_packing *k = &codec->packing;
    *out = (struct frame_head){.method = (uint8_t)k->method,
                               .shuffle = (uint8_t)k->shuffle,
                               .level = (int16_t)k->level};
}

/* ---- segments ----------------------------------------------------------------------- */

/* open_segment - begins a new segment of a Tier; its number plus 1, or -errno. */
static int64_t open_segment(struct packs *p, uint32_t tier)
{
    char name[32];
    if (p->segment_count == SEGMENTS_MAX)
        return -ENOSPC;
    snprintf(name, sizeof(name), "segment-%06u.pack", p->segment_count);
    int fd = file_openat(p->engine->tiers[tier], name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return fd;
    p->segments[p->segment_count++] = (struct pack_segment){.fd = fd, .tier = tier};
    return p->segment_count;
}

/* segment_bytes - how large a segment gets: memory is given back by whole ones. */
static uint64_t segment_bytes(const struct packs *p, uint32_t tier)
{
    struct monarch_account a;
    monarch_table_account(p->engine->table, tier, &a);
    uint64_t part = a.capacity / SEGMENT_PARTS;
    part = part < SEGMENT_BYTES_MIN ? SEGMENT_BYTES_MIN : part;
    return part < SEGMENT_BYTES_MAX ? part : SEGMENT_BYTES_MAX;
}

/* allocate - a place for so many bytes at the end of a segment, under the lock. */
static int allocate(struct packs *p, uint32_t tier, uint64_t bytes,
                    struct frame_place *out)
{
    struct packed_tier *t = &p->tiers[tier];
    if (!t->segment ||
        p->segments[t->segment - 1].bytes + bytes > segment_bytes(p, tier)) {
        int64_t opened = open_segment(p, tier);
        if (opened < 0)
            return (int)opened;
        t->segment = (uint32_t)opened;
    }
    struct pack_segment *s = &p->segments[t->segment - 1];
    *out = (struct frame_place){t->segment, (uint32_t)s->bytes, (uint32_t)bytes};
    s->bytes += bytes;
    return 0;
}

static int write_at(int fd, const uint8_t *bytes, size_t n, uint64_t offset)
{
    size_t put = 0;
    while (put < n) {
        ssize_t r = pwrite(fd, bytes + put, n - put, (off_t)(offset + put));
        if (r > 0)
            put += (size_t)r;
        else if (r == 0)
            return -ENOSPC;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

/* packs_append - writes a finished frame behind those of its Tier. A failure leaves a hole,
 * which nothing refers to. */
int packs_append(struct packs *p, const struct frame *f, struct frame_place *out)
{
    pthread_mutex_lock(&p->lock);
    int rc = allocate(p, f->tier, f->used, out);
    int fd = rc ? -1 : p->segments[out->segment - 1].fd;
    pthread_mutex_unlock(&p->lock);
    return rc ? rc : write_at(fd, f->bytes, f->used, out->offset);
}

/* packs_row - that of an Extent of a File. */
uint64_t packs_row(const struct packs *p, uint32_t file, uint32_t extent)
{
    return p->engine->table->options.first[file] + extent;
}

/* packs_set - a row has its frame there from now on; false: the segment was dropped. */
bool packs_set(struct packs *p, uint64_t row, const struct frame_place *place)
{
    pthread_mutex_lock(&p->lock);
    struct pack_segment *s = &p->segments[place->segment - 1];
    bool kept = !s->dropped;
    if (kept) {
        p->places[row] = *place;
        s->held += place->bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return kept;
}

/* packs_has - there is a frame. */
bool packs_has(struct packs *p, uint64_t row)
{
    pthread_mutex_lock(&p->lock);
    bool has = p->places[row].segment != 0;
    pthread_mutex_unlock(&p->lock);
    return has;
}

/* packs_take - the place of a frame; false: there is none. */
bool packs_take(struct packs *p, uint64_t row, struct unpacking *out)
{
    pthread_mutex_lock(&p->lock);
    const struct frame_place *place = &p->places[row];
    bool found = place->segment != 0;
    *out = (struct unpacking){.place = *place, .fd = -1};
    if (found) {
        out->fd = p->segments[place->segment - 1].fd;
        out->tier = p->segments[place->segment - 1].tier;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* packs_forget - there is no frame any more. */
void packs_forget(struct packs *p, uint64_t row)
{
    pthread_mutex_lock(&p->lock);
    p->places[row] = (struct frame_place){0};
    pthread_mutex_unlock(&p->lock);
}

/* last_segment - the newest one of a Tier that holds frames, plus 1; 0: there is none. */
static uint32_t last_segment(const struct packs *p, uint32_t tier)
{
    for (uint32_t n = p->segment_count; n; n--)
        if (p->segments[n - 1].tier == tier && p->segments[n - 1].held)
            return n;
    return 0;
}

/* drop_frames - those of one File that are in a segment. */
static void drop_frames(struct packs *p, uint32_t number, uint32_t file,
                        uint32_t reason)
{
    uint64_t row = packs_row(p, file, 0), end = packs_row(p, file + 1, 0);
    for (uint32_t extent = 0; row < end; row++, extent++) {
        if (p->places[row].segment != number)
            continue;
        p->places[row] = (struct frame_place){0};
        if (!table_show_extent(p->engine->table, file, extent, 0))
            table_evict_packed(p->engine->table, file, reason);
    }
}

/* drop - empties a segment: Files whose frames are in it are not packed any more. Who reads
 * it at this moment finds a frame that ends too soon. */
static uint64_t drop(struct packs *p, uint32_t number, uint32_t reason)
{
    struct pack_segment *s = &p->segments[number - 1];
    uint64_t held = s->held;
    for (uint32_t file = 0; file < p->engine->catalog->file_count; file++)
        drop_frames(p, number, file, reason);
    s->dropped = true;
    s->held = 0;
    if (p->tiers[s->tier].segment == number)
        p->tiers[s->tier].segment = 0;
    if (ftruncate(s->fd, 0))
        return 0;
    table_give_room(p->engine->table, s->tier, held);
    return held;
}

/* monarch_engine_drop_packed - empties the newest segments of a Tier whose memory is needed,
 * until so much is free; returns how much. Their Files are absent for the reason. */
uint64_t monarch_engine_drop_packed(struct engine *e, uint32_t tier, uint64_t bytes,
                                    uint32_t reason)
{
    struct packs *p = e->packs;
    uint64_t freed = 0;
    uint32_t number;
    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    while (freed < bytes && (number = last_segment(p, tier)))
        freed += drop(p, number, reason);
    pthread_mutex_unlock(&p->lock);
    return freed;
}

/* ---- Files that are to be packed ------------------------------------------------------ */

/* packs_queue - a File in the Pool is to be packed when there is time. */
void packs_queue(struct packs *p, uint32_t file)
{
    pthread_mutex_lock(&p->lock);
    ring_push(&p->waiting, &file);
    pthread_mutex_unlock(&p->lock);
}

/* packs_waiting - there is one. */
bool packs_waiting(struct packs *p)
{
    pthread_mutex_lock(&p->lock);
    bool waits = p->waiting.count > 0;
    pthread_mutex_unlock(&p->lock);
    return waits;
}

/* packs_next - the one that has waited longest; false: none waits. */
bool packs_next(struct packs *p, uint32_t *file)
{
    pthread_mutex_lock(&p->lock);
    bool found = ring_pop(&p->waiting, file);
    pthread_mutex_unlock(&p->lock);
    return found;
}
