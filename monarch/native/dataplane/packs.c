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
#include "shared/recency.h"
#include "shared/xxh3.h"

enum {
    SEGMENT_BYTES_MAX = 256 << 20,
    SEGMENT_BYTES_MIN = 16 << 20,
    SEGMENT_BYTES_LRU = 1 << 20, /* the same of a Tier from which old ones leave */
    SEGMENT_PARTS = 16,          /* of a small Tier, a segment is one part of so many */
    WAITING_MAX = 1 << 16,       /* Files in the Pool that are to be packed */
    RULES_MAX = 16,
};

struct pack_segment {
    int fd;
    uint32_t tier;
    uint64_t bytes;       /* where the next frame goes */
    uint64_t held;        /* of frames that Files have */
    uint32_t open_frames; /* that have a place, and may still come to have a File */
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
    struct frame_place *places; /* per File */
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
    p->places = calloc(e->catalog->file_count + 1, sizeof(*p->places));
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

/* reuse_segment - one of a Tier that was dropped, and that nobody writes to; its number plus
 * 1, or 0. Who still reads it finds frames of other Files. */
static uint32_t reuse_segment(struct packs *p, uint32_t tier)
{
    for (uint32_t i = 0; i < p->segment_count; i++) {
        struct pack_segment *s = &p->segments[i];
        if (s->tier != tier || !s->dropped || s->open_frames)
            continue;
        *s = (struct pack_segment){.fd = s->fd, .tier = tier};
        return i + 1;
    }
    return 0;
}

/* open_segment - begins a new segment of a Tier; its number plus 1, or -errno. */
static int64_t open_segment(struct packs *p, uint32_t tier)
{
    char name[32];
    uint32_t again = reuse_segment(p, tier);
    if (again)
        return again;
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
    uint64_t least = p->engine->table->evicts[tier] ? SEGMENT_BYTES_LRU
                                                    : SEGMENT_BYTES_MIN;
    part = part < least ? least : part;
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
    s->open_frames++;
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
    if (rc)
        return rc;
    rc = write_at(fd, f->bytes, f->used, out->offset);
    if (rc) {
        pthread_mutex_lock(&p->lock);
        p->segments[out->segment - 1].open_frames--;
        pthread_mutex_unlock(&p->lock);
    }
    return rc;
}

/* packs_set - a File has its frame there from now on; false: the segment was dropped. */
bool packs_set(struct packs *p, uint32_t file, const struct frame_place *place)
{
    pthread_mutex_lock(&p->lock);
    struct pack_segment *s = &p->segments[place->segment - 1];
    bool kept = !s->dropped;
    s->open_frames--;
    if (kept) {
        p->places[file] = *place;
        s->held += place->bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return kept;
}

/* packs_take - the place of a File's frame; false: it has none. */
bool packs_take(struct packs *p, uint32_t file, struct unpacking *out)
{
    pthread_mutex_lock(&p->lock);
    const struct frame_place *place = &p->places[file];
    bool found = place->segment != 0;
    *out = (struct unpacking){.place = *place, .fd = -1};
    if (found) {
        out->fd = p->segments[place->segment - 1].fd;
        out->tier = p->segments[place->segment - 1].tier;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* packs_forget - a File has no frame any more. */
void packs_forget(struct packs *p, uint32_t file)
{
    pthread_mutex_lock(&p->lock);
    p->places[file] = (struct frame_place){0};
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

/* drop - empties a segment: Files whose frames are in it are not packed any more. Who reads
 * it at this moment finds a frame that ends too soon. Adds how many Files there were. */
static uint64_t drop(struct packs *p, uint32_t number, uint32_t reason, uint64_t *files)
{
    struct pack_segment *s = &p->segments[number - 1];
    uint64_t held = s->held;
    for (uint64_t file = 0; file < p->engine->catalog->file_count; file++) {
        if (p->places[file].segment != number)
            continue;
        p->places[file] = (struct frame_place){0};
        *files += table_evict_packed(p->engine->table, (uint32_t)file, reason);
    }
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
    uint64_t freed = 0, files = 0;
    uint32_t number;
    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    while (freed < bytes && (number = last_segment(p, tier)))
        freed += drop(p, number, reason, &files);
    pthread_mutex_unlock(&p->lock);
    table_count_dropped(e->table, files);
    return freed;
}

/* packs_uses - how long ago the Files of each segment were used; false: there are more than
 * `max`. */
bool packs_uses(struct packs *p, struct segment_use *uses, uint32_t max)
{
    const struct flags *flags = p->engine->flags;
    uint32_t now = recency_tick(flags);
    pthread_mutex_lock(&p->lock);
    bool fits = p->segment_count <= max;
    for (uint32_t i = 0; fits && i < p->segment_count; i++) {
        uint32_t tier = p->segments[i].tier;
        uses[i] = (struct segment_use){.tier = tier,
                                       .grows = p->tiers[tier].segment == i + 1};
    }
    for (uint64_t i = 0; fits && i < p->engine->catalog->file_count; i++) {
        if (!p->places[i].segment)
            continue;
        struct segment_use *use = &uses[p->places[i].segment - 1];
        use->files++;
        use->ages += now -
                     atomic_load_explicit(recency_of(flags, i), memory_order_relaxed);
    }
    pthread_mutex_unlock(&p->lock);
    return fits;
}

/* packs_drop - empties a segment; returns how many bytes it held. Its Files can be asked
 * for. */
uint64_t packs_drop(struct packs *p, uint32_t segment, uint64_t *files)
{
    pthread_mutex_lock(&p->lock);
    uint64_t freed = drop(p, segment + 1, REASON_NONE, files);
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
