/* pack_coders.c - with which codec the Files of packed Tiers are compressed, and coders that are
 * kept for the next one who needs them.
 */
#include <stdlib.h>

#include "dataplane/media/codec.h"
#include "dataplane/extents/packs_state.h"
#include "shared/xxh3.h"

/* monarch_packing_id - the same for codecs that decode each other's frames, on all nodes and in
 * later jobs; never 0. */
uint32_t monarch_packing_id(const struct monarch_packing *k)
{
    const uint32_t how[] = {k->method, k->shuffle};
    uint64_t dictionary = 0;
    if (k->dictionary_bytes)
        dictionary = xxh3(k->dictionary, k->dictionary_bytes, 0);
    return (uint32_t)xxh3(how, sizeof(how), dictionary) | 1;
}

/* packing_coder - a new coder. -ENOSYS: there is no library; -EINVAL: the dictionary is none. */
int packing_coder(const struct monarch_packing *k, struct coder **out)
{
    int rc = monarch_coder_new(k->method, k->level, k->shuffle, out);
    if (rc || !k->dictionary_bytes)
        return rc;
    rc = monarch_coder_learn(*out, k->dictionary, k->dictionary_bytes);
    if (rc)
        monarch_coder_free(*out);
    return rc;
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
