/* packs.h - the pack files of packed Tiers: frames one after the other, in segments. */
#ifndef MONARCH_PACKS_H
#define MONARCH_PACKS_H

#include "dataplane/media/codec.h"
#include "dataplane/media/frame.h"

struct job;
struct packed_codec;
struct packs;
struct monarch_pack;
struct partials;
struct table;

/* A frame holds a small File or one Extent of a large one; its row is that of the staging table. */
struct frame_place { /* the place of a frame; segment 0: none */
    uint32_t segment, offset, bytes;
};

struct to_pack { /* from the Pool */
    uint32_t file, extent;
};

struct unpacking { /* a frame that is being decoded */
    struct frame_place place;
    struct frame_head head;
    uint32_t lengths[FRAME_PIECES_MAX];
    uint32_t piece;  /* the next one */
    uint64_t offset; /* in its segment */
    uint32_t tier;   /* of its segment */
    int fd;          /* the same; borrowed */
};

struct segment_use {       /* uses of the Files with frames in a segment */
    uint64_t frames, ages; /* number; sum of the ticks since the last use */
    uint32_t tier;
    bool grows; /* frames are appended to it */
};

enum { SEGMENTS_MAX = 1 << 14 };

struct packings { /* the packings of the packed Tiers; borrowed */
    const struct monarch_packing *all;
    uint64_t count;
};

int packs_new(const struct job *job, struct table *table, const struct packings *how,
              struct packs **out);
void packs_free(struct packs *p);

struct packed_codec *packs_codec(struct packs *p, uint32_t tier, uint32_t file);
struct coder *packs_coder(struct packs *p, struct packed_codec *codec);
void packs_coder_back(struct packs *p, struct packed_codec *codec, struct coder *coder);
uint32_t packs_id(struct packs *p, uint32_t tier, uint32_t file);
void packs_head(const struct packed_codec *codec, struct frame_head *out);

/* packs_same - two places are the same. */
static inline bool packs_same(const struct frame_place *a, const struct frame_place *b)
{
    return a->segment == b->segment && a->offset == b->offset && a->bytes == b->bytes;
}

int packs_append(struct packs *p, uint32_t tier, const void *bytes, size_t n,
                 struct frame_place *out);
uint64_t packs_row(const struct packs *p, uint32_t file, uint32_t extent);
uint32_t packs_file(const struct packs *p, uint64_t row);
bool packs_has(struct packs *p, uint64_t row);
bool packs_set(struct packs *p, uint64_t row, const struct frame_place *place);
bool packs_move(struct packs *p, uint64_t row, const struct frame_place *from,
                const struct frame_place *to);
bool packs_moved(struct packs *p, uint64_t row, const struct frame_place *found);
bool packs_take(struct packs *p, uint64_t row, struct unpacking *out);
void packs_forget(struct packs *p, uint64_t row);

/* pack_drops.c */
void packs_drop_frame(struct packs *p, uint32_t file, uint32_t extent);
void packs_drop_damaged(struct packs *p, uint32_t file, uint32_t extent);
uint64_t packs_drop_newest(struct packs *p, uint32_t tier, uint64_t bytes,
                           uint32_t reason);

void packs_uses(struct packs *p, struct segment_use *uses);
uint64_t packs_drop(struct packs *p, uint32_t segment, uint64_t *files);

/* pack_segments.c: the queue of Extents to be packed */
void packs_queue(struct packs *p, uint32_t file, uint32_t extent);
bool packs_has_pending(struct packs *p);
bool packs_next(struct packs *p, struct to_pack *out);
bool packs_has_pending_extents(struct packs *p);
void packs_block(struct packs *p, uint32_t file);
bool packs_blocked(struct packs *p, uint32_t *file);
void packs_unblock(struct packs *p);

/* pack_adoption.c: segments that outlive their job */
int64_t pack_adoption_take(struct partials *parts, const struct monarch_pack *pack);
void pack_adoption_seal(struct partials *parts);

#endif
