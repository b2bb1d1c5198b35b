/* pack_coders.c - the codecs of the Files of packed Tiers, and a store of their coders. The codecs
 * themselves: media/codec.c. */
#include <stdlib.h>

#include "dataplane/extents/packs_state.h"
#include "dataplane/media/codec.h"

/* packs_codec - returns the codec of a File in a Tier. */
struct packed_codec *packs_codec(struct packs *p, uint32_t tier, uint32_t file)
{
    struct packed_codec *codecs = p->tiers[tier].codecs;
    const uint8_t *rules = codecs[0].packing.rules;
    return &codecs[rules ? rules[file] : 0];
}

/* packs_id - returns the id by which a peer decides whether it can decode the frame of a File. */
uint32_t packs_id(struct packs *p, uint32_t tier, uint32_t file)
{
    return packs_codec(p, tier, file)->id;
}

/* packs_coder - returns a coder with this codec, until packs_coder_back(); NULL: out of memory. */
struct coder *packs_coder(struct packs *p, struct packed_codec *codec)
{
    pthread_mutex_lock(&p->lock);
    struct spare_coder *one = codec->spare;
    struct coder *coder;
    if (one)
        codec->spare = one->next;
    pthread_mutex_unlock(&p->lock);
    if (!one)
        return packing_coder(&codec->packing, &coder) ? NULL : coder;
    coder = one->coder;
    free(one);
    return coder;
}

/* packs_coder_back - keeps the coder for its next user. */
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

/* packs_head - initializes a head with this codec. */
void packs_head(const struct packed_codec *codec, struct frame_head *out)
{
    const struct monarch_packing *k = &codec->packing;
    *out = (struct frame_head){.method = (uint8_t)k->method,
                               .shuffle = (uint8_t)k->shuffle,
                               .level = (int16_t)k->level};
}
