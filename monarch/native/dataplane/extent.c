/* extent.c - what is computed of an Extent while its bytes pass: checksum and seal.
 *
 * Both are kept for as long as the agent lives, and given to peers with the bytes: so
 * that serving needs no look at them, and sendfile() stays. Checksums go to the manifest
 * of a retained Tier too; seals do not, as the next job has another key. Where there are
 * seals and no Tier is retained nobody needs checksums, which cost half as much.
 */
#include "dataplane/extent.h"

#include "dataplane/wire.h"
#include "shared/xxh3.h"

/* extent_begin - the next bytes are the first of an Extent. A peer's seal lends its nonce
 * to the one that it is to be compared with; own bytes get a new one. */
int extent_begin(struct engine *e, struct transfer *t, const struct monarch_seal *told)
{
    uint32_t extent = (uint32_t)(t->offset / EXTENT_BYTES);
    const struct extent_name name = {.file = t->order.file,
                                     .extent = extent,
                                     .bytes = frame_extent_bytes(t->size, extent)};
    int rc = 0;
    if (!e->sealer)
        return 0;
    if (told)
        t->seal = *told;
    else
        rc = seal_nonce(&t->seal);
    return rc ? rc : seal_begin(e->sealer, &name, &t->seal, &t->sealing);
}

/* extent_add - takes in the next bytes: whole chunks of CHUNK_BYTES, but for the last of
 * an Extent. */
int extent_add(struct engine *e, struct transfer *t, const void *bytes, size_t n)
{
    if (!e->options.seals_only || transfer_adopts(t))
        t->chain = xxh3(bytes, n, t->chain);
    return t->sealing ? seal_add(t->sealing, bytes, n) : 0;
}

/* extent_end - all bytes were taken in: `chain` and the tag of `seal` are theirs. */
int extent_end(struct transfer *t)
{
    return t->sealing ? seal_end(&t->sealing, t->seal.tag) : 0;
}

/* extent_keep - notes both for who asks for the Extent, and goes on to the next one. The
 * lock is for a File that is staged again: half of an old seal and half of a new one
 * would make an honest node look like a forger. */
void extent_keep(struct engine *e, struct transfer *t)
{
    uint64_t place = (uint64_t)(t->digest - e->options.digests);
    __atomic_store_n(t->digest++, t->chain, __ATOMIC_RELAXED);
    t->chain = 0;
    if (!e->sealer)
        return;
    pthread_mutex_lock(&e->seals_lock);
    e->options.seals[place] = t->seal;
    pthread_mutex_unlock(&e->seals_lock);
}

/* extent_seal - the seal that was kept; all zero where this node makes none. */
struct monarch_seal extent_seal(struct engine *e, uint64_t place)
{
    struct monarch_seal seal = {0};
    if (!e->sealer)
        return seal;
    pthread_mutex_lock(&e->seals_lock);
    seal = e->options.seals[place];
    pthread_mutex_unlock(&e->seals_lock);
    return seal;
}
