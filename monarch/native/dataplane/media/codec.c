/* codec.c - the codecs, and coders. A coder is one codec with contexts that it reuses: creating
 * them takes longer than coding a small piece. */
#include "dataplane/media/codec.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/base/clock.h"
#include "dataplane/media/codec_libraries.h"
#include "dataplane/media/seal.h"
#include "dataplane/media/shuffle.h"
#include "shared/xxh3.h"

struct coder {
    uint32_t method;  /* enum method */
    uint32_t shuffle; /* bytes of an element whose bytes are grouped; 1: no grouping */
    int32_t level;
    const struct libzstd *zstd;
    const struct liblz4 *lz4;
    void *compressor, *decompressor; /* of zstd; or the state of lz4 and NULL */
    void *packing_dictionary, *unpacking_dictionary;
    uint8_t *shuffled;
    size_t shuffled_room;
};

/* monarch_codec_library - returns the name of the library of a method, "" if it needs none; NULL:
 * this node lacks the library. */
const char *monarch_codec_library(uint32_t method)
{
    if (method == METHOD_NONE)
        return "";
    if (method == METHOD_ZSTD)
        return libzstd_load() ? libzstd_load()->name : NULL;
    return method == METHOD_LZ4 && liblz4_load() ? liblz4_load()->name : NULL;
}

/* open_libraries - loads the library of the codec and creates its contexts. */
static int open_libraries(struct coder *c)
{
    if (c->method == METHOD_NONE)
        return 0;
    if (c->method == METHOD_ZSTD) {
        c->zstd = libzstd_load();
        if (!c->zstd)
            return -ENOSYS;
        c->compressor = c->zstd->compressor_new();
        c->decompressor = c->zstd->decompressor_new();
        return c->compressor && c->decompressor ? 0 : -ENOMEM;
    }
    c->lz4 = liblz4_load();
    if (!c->lz4)
        return -ENOSYS;
    int bytes = c->level ? c->lz4->state_bytes_hc() : c->lz4->state_bytes();
    c->compressor = malloc((size_t)bytes);
    return c->compressor ? 0 : -ENOMEM;
}

/* monarch_coder_new - creates a coder that groups the bytes of elements of `shuffle` bytes; 1: no
 * grouping. -EINVAL: no such codec; -ENOSYS: this node lacks its library. */
int monarch_coder_new(uint32_t method, int32_t level, uint32_t shuffle,
                      struct coder **out)
{
    if (method >= METHODS || !shuffle || shuffle > SHUFFLE_MAX)
        return -EINVAL;
    struct coder *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->method = method;
    c->level = level;
    c->shuffle = shuffle;
    int rc = open_libraries(c);
    if (rc)
        monarch_coder_free(c);
    else
        *out = c;
    return rc;
}

static void free_dictionaries(struct coder *c)
{
    if (c->packing_dictionary)
        c->zstd->packing_dictionary_free(c->packing_dictionary);
    if (c->unpacking_dictionary)
        c->zstd->unpacking_dictionary_free(c->unpacking_dictionary);
    c->packing_dictionary = c->unpacking_dictionary = NULL;
}

/* monarch_coder_free - frees a coder; does nothing if it is NULL. */
void monarch_coder_free(struct coder *c)
{
    if (!c)
        return;
    free_dictionaries(c);
    if (c->zstd && c->compressor)
        c->zstd->compressor_free(c->compressor);
    else
        free(c->compressor);
    if (c->zstd && c->decompressor)
        c->zstd->decompressor_free(c->decompressor);
    free(c->shuffled);
    free(c);
}

/* monarch_coder_learn - packs and unpacks with a trained dictionary from now on. -EINVAL: the
 * method uses none, or the dictionary is damaged. */
int monarch_coder_learn(struct coder *c, const void *dictionary, size_t n)
{
    if (!c->zstd)
        return -EINVAL;
    free_dictionaries(c);
    c->packing_dictionary = c->zstd->packing_dictionary_new(dictionary, n, c->level);
    c->unpacking_dictionary = c->zstd->unpacking_dictionary_new(dictionary, n);
    if (c->packing_dictionary && c->unpacking_dictionary)
        return 0;
    free_dictionaries(c);
    return -EINVAL;
}

/* shuffle_room - returns memory for the shuffled bytes of a piece; NULL: out of memory. */
static uint8_t *shuffle_room(struct coder *c, size_t n)
{
    if (c->shuffled_room >= n)
        return c->shuffled;
    uint8_t *more = realloc(c->shuffled, n);
    if (!more)
        return NULL;
    c->shuffled = more;
    c->shuffled_room = n;
    return more;
}

static int64_t pack_zstd(struct coder *c, const void *bytes, size_t n, void *out,
                         size_t room)
{
    const struct libzstd *z = c->zstd;
    size_t got = c->packing_dictionary
                     ? z->compress_with(c->compressor, out, room, bytes, n,
                                        c->packing_dictionary)
                     : z->compress(c->compressor, out, room, bytes, n, c->level);
    return z->is_error(got) ? -ENOSPC : (int64_t)got;
}

static int64_t pack_lz4(struct coder *c, const void *bytes, size_t n, void *out,
                        size_t room)
{
    const struct liblz4 *l = c->lz4;
    if (n > INT_MAX || room > INT_MAX)
        return -EINVAL;
    int got = c->level ? l->compress_hc(c->compressor, bytes, out, (int)n, (int)room,
                                        c->level)
                       : l->compress(c->compressor, bytes, out, (int)n, (int)room, 1);
    return got > 0 ? got : -ENOSPC;
}

/* monarch_coder_pack - compresses a piece; returns the size of the result, or -ENOSPC if it does
 * not fit into `room` bytes. */
int64_t monarch_coder_pack(struct coder *c, const void *bytes, size_t n, void *out,
                           size_t room)
{
    if (c->method == METHOD_NONE)
        return -ENOSPC; /* no gain */
    if (c->shuffle > 1) {
        uint8_t *shuffled = shuffle_room(c, n);
        if (!shuffled)
            return -ENOMEM;
        shuffle_bytes(bytes, n, c->shuffle, shuffled);
        bytes = shuffled;
    }
    int64_t got = c->zstd ? pack_zstd(c, bytes, n, out, room)
                          : pack_lz4(c, bytes, n, out, room);
    vector_registers_reset();
    return got;
}

static bool unpack(struct coder *c, const void *packed, size_t n, void *out,
                   size_t plain)
{
    const struct libzstd *z = c->zstd;
    if (!z)
        return n <= INT_MAX && plain <= INT_MAX &&
               c->lz4->decompress(packed, out, (int)n, (int)plain) == (int)plain;
    size_t got = c->unpacking_dictionary
                     ? z->decompress_with(c->decompressor, out, plain, packed, n,
                                          c->unpacking_dictionary)
                     : z->decompress(c->decompressor, out, plain, packed, n);
    return got == plain; /* an error is larger than any size */
}

/* monarch_coder_unpack - decompresses a piece of exactly `plain` bytes. -EBADMSG: it is damaged, or
 * has another size; nothing is written beyond `plain` bytes. */
int monarch_coder_unpack(struct coder *c, const void *packed, size_t n, void *out,
                         size_t plain)
{
    bool shuffles = c->shuffle > 1;
    if (c->method == METHOD_NONE)
        return -EINVAL;
    uint8_t *to = shuffles ? shuffle_room(c, plain) : out;
    if (!to)
        return -ENOMEM;
    bool whole = unpack(c, packed, n, to, plain);
    vector_registers_reset();
    if (!whole)
        return -EBADMSG;
    if (shuffles)
        unshuffle_bytes(to, plain, c->shuffle, out);
    return 0;
}

/* monarch_packing_id - returns an id that is equal for codecs that decode each other's frames, on
 * all nodes and in later jobs; never 0. */
uint32_t monarch_packing_id(const struct monarch_packing *k)
{
    const uint32_t how[] = {k->method, k->shuffle};
    uint64_t dictionary = 0;
    if (k->dictionary_bytes)
        dictionary = xxh3(k->dictionary, k->dictionary_bytes, 0);
    return (uint32_t)xxh3(how, sizeof(how), dictionary) | 1;
}

/* packing_coder - creates a coder. -ENOSYS: no library; -EINVAL: the dictionary is invalid. */
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

/* ---- trials: in processor time of this thread, so that other work does not count ---- */

/* try_piece - compresses a piece into `room` bytes, at most its own size, and decompresses it if it
 * fits. */
static int try_piece(struct coder *c, const uint8_t *piece, uint8_t *packed,
                     uint8_t *plain, struct monarch_tried *t)
{
    uint64_t began = clock_cpu_ns();
    int64_t got = monarch_coder_pack(c, piece, t->bytes, packed, t->room);
    t->pack_ns = clock_cpu_ns() - began;
    t->packed = got < 0 ? 0 : (uint64_t)got;
    if (got < 0)
        return got == -ENOSPC ? 0 : (int)got;
    began = clock_cpu_ns();
    int rc = monarch_coder_unpack(c, packed, t->packed, plain, t->bytes);
    t->unpack_ns = clock_cpu_ns() - began;
    return rc;
}

static uint64_t largest(const struct monarch_tried *pieces, uint64_t n)
{
    uint64_t most = 1;
    for (uint64_t i = 0; i < n; i++)
        most = pieces[i].bytes > most ? pieces[i].bytes : most;
    return most;
}

/* monarch_coder_try - tries consecutive pieces until compression has taken `limit_ns`, but at least
 * `least` of them; returns their number, or -errno. */
int64_t monarch_coder_try(struct coder *c, const uint8_t *bytes,
                          struct monarch_tried *pieces, uint64_t n,
                          const struct monarch_trial *trial)
{
    uint64_t room = largest(pieces, n), spent = 0, done = 0;
    uint8_t *packed = malloc(room), *plain = malloc(room);
    int rc = packed && plain ? 0 : -ENOMEM;
    while (!rc && done < n && (done < trial->least || spent < trial->limit_ns)) {
        rc = try_piece(c, bytes, packed, plain, &pieces[done]);
        bytes += pieces[done].bytes;
        spent += pieces[done].pack_ns;
        done++;
    }
    free(packed);
    free(plain);
    return rc ? rc : (int64_t)done;
}
