/* seal.h - the MAC of an Extent, which only the nodes of the job can make or check. */
#ifndef MONARCH_SEAL_H
#define MONARCH_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/monarch.h"

struct sealer;  /* the job's key, and contexts that hold it */
struct sealing; /* one seal that is being made */

struct extent_name { /* what the bytes are said to be */
    uint32_t file, extent;
    uint64_t bytes;
};

int sealer_new(const uint8_t *key, uint64_t catalog_digest, struct sealer **out);
void sealer_free(struct sealer *s);

int seal_nonce(struct monarch_seal *seal);
int seal_begin(struct sealer *s, const struct extent_name *name,
               const struct monarch_seal *seal, struct sealing **out);
int seal_add(struct sealing *g, const void *bytes, size_t n);
int seal_end(struct sealing **g, uint8_t tag[SEAL_TAG_BYTES]);
void seal_drop(struct sealing **g);
bool seal_same(const uint8_t *a, const uint8_t *b);

#endif
