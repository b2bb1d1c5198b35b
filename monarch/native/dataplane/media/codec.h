/* codec.h - compresses and decompresses pieces of Files with the system's libraries.
 *
 * The libraries are loaded on first use; a node without them stores Files uncompressed. One thread
 * at a time may use a coder.
 */
#ifndef MONARCH_CODEC_H
#define MONARCH_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "dataplane/base/export.h"

enum method {
    METHOD_NONE = 0,
    METHOD_LZ4 = 1,  /* level 0: lz4; from 1 on: lz4hc */
    METHOD_ZSTD = 2, /* levels below 0 are the fast ones */
};

enum { SHUFFLE_MAX = 8, METHODS = 3 };

struct monarch_packing { /* the packing of a Tier, or of its Files with one rule */
    uint32_t tier;
    uint32_t method; /* enum method */
    int32_t level;
    uint16_t shuffle, rule; /* rule 0: Files of no other rule */
    const uint8_t *rules;   /* for rule 0: rule of each File; NULL: 0; borrowed */
    const void *dictionary; /* borrowed */
    uint64_t dictionary_bytes;
};

MONARCH_API uint32_t monarch_packing_id(const struct monarch_packing *k);

struct coder;

struct monarch_tried { /* a piece of a trial */
    uint64_t bytes;
    uint64_t room;   /* at most `bytes`; a piece that does not fit is stored as it is */
    uint64_t packed; /* its compressed size; 0: it does not fit */
    uint64_t pack_ns, unpack_ns;
};

struct monarch_trial { /* ends after `limit_ns`, but not before `least` pieces */
    uint64_t limit_ns, least;
};

MONARCH_API const char *monarch_codec_library(uint32_t method);
MONARCH_API int monarch_coder_new(uint32_t method, int32_t level, uint32_t shuffle,
                                  struct coder **out);
MONARCH_API void monarch_coder_free(struct coder *c);
MONARCH_API int monarch_coder_learn(struct coder *c, const void *dictionary, size_t n);
MONARCH_API int64_t monarch_coder_pack(struct coder *c, const void *bytes, size_t n,
                                       void *out, size_t room);
MONARCH_API int monarch_coder_unpack(struct coder *c, const void *packed, size_t n,
                                     void *out, size_t plain);
MONARCH_API int64_t monarch_coder_try(struct coder *c, const uint8_t *bytes,
                                      struct monarch_tried *pieces, uint64_t n,
                                      const struct monarch_trial *trial);

int packing_coder(const struct monarch_packing *k, struct coder **out);

#endif
