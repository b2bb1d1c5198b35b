/* seal.c - the MAC of an Extent, which only the nodes of the job can make or check.
 *
 * It is made once, while the bytes are staged or adopted, and travels with them: who has
 * fetched an Extent passes on the seal that it has checked. It covers the Catalog, the
 * File, the Extent and its length, so that an answer to another question fails too.
 *
 * Each seal has a nonce of 96 random bits. With 2^32 seals of one key the odds that any
 * two are the same are 2^-33, and such a pair helps to forge under that nonce only.
 */
#include "dataplane/seal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/libcrypto.h"

enum { SPARE_MAX = 64 };

struct sealing {
    struct sealer *sealer;
    struct sealing *next; /* of those that are spare */
    void *ctx;
};

struct sealer {
    const struct libcrypto *library;
    uint8_t key[SEAL_KEY_BYTES];
    uint64_t catalog_digest;
    pthread_mutex_t lock; /* guards the rest */
    struct sealing *spare;
    uint32_t spare_count;
};

struct preface { /* what stands before the bytes, little-endian */
    char label[16];
    uint64_t catalog_digest;
    uint32_t file, extent;
    uint64_t bytes, zero;
};

/* The bytes must begin at a whole block of Poly1305: elsewhere it takes twice as long. */
_Static_assert(sizeof(struct preface) == 48 && sizeof(struct preface) % 16 == 0,
               "no holes");

/* sealer_new - takes the job's key for the Files of one Catalog. -ENOSYS: this node has
 * no libcrypto. */
int sealer_new(const uint8_t *key, uint64_t catalog_digest, struct sealer **out)
{
    const struct libcrypto *library = libcrypto_load();
    if (!library)
        return -ENOSYS;
    struct sealer *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->library = library;
    s->catalog_digest = catalog_digest;
    memcpy(s->key, key, SEAL_KEY_BYTES);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

static void free_sealing(struct sealing *g)
{
    g->sealer->library->ctx_free(g->ctx);
    free(g);
}

/* sealer_free - when no seal is being made any more; NULL is left alone. */
void sealer_free(struct sealer *s)
{
    if (!s)
        return;
    while (s->spare) {
        struct sealing *g = s->spare;
        s->spare = g->next;
        free_sealing(g);
    }
    explicit_bzero(s->key, sizeof(s->key));
    free(s);
}

static struct sealing *new_sealing(struct sealer *s)
{
    struct sealing *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->sealer = s;
    g->ctx = libcrypto_keyed(s->library, s->key);
    if (g->ctx)
        return g;
    free(g);
    return NULL;
}

/* take - a spare one: the key's schedule costs as much as the MAC of 4 KB. */
static struct sealing *take(struct sealer *s)
{
    pthread_mutex_lock(&s->lock);
    struct sealing *g = s->spare;
    if (g) {
        s->spare = g->next;
        s->spare_count--;
    }
    pthread_mutex_unlock(&s->lock);
    return g ? g : new_sealing(s);
}

static void put_back(struct sealing *g)
{
    struct sealer *s = g->sealer;
    pthread_mutex_lock(&s->lock);
    bool kept = s->spare_count < SPARE_MAX;
    if (kept) {
        g->next = s->spare;
        s->spare = g;
        s->spare_count++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!kept)
        free_sealing(g);
}

/* seal_nonce - gives a seal that is to be made its nonce. */
int seal_nonce(struct monarch_seal *seal)
{
    long n = syscall(SYS_getrandom, seal->nonce, sizeof(seal->nonce), 0);
    return n == sizeof(seal->nonce) ? 0 : -ENOMEM;
}

/* monarch_seal_library - the name of the library that makes seals here; NULL: none, or
 * the kernel gives no random numbers. */
const char *monarch_seal_library(void)
{
    const struct libcrypto *library = libcrypto_load();
    struct monarch_seal probe;
    return library && !seal_nonce(&probe) ? library->name : NULL;
}

/* seal_begin - begins the seal of an Extent under a nonce; -errno: none is being made. */
int seal_begin(struct sealer *s, const struct extent_name *name,
               const struct monarch_seal *seal, struct sealing **out)
{
    const struct preface preface = {.label = "monarch extent",
                                    .catalog_digest = s->catalog_digest,
                                    .file = name->file,
                                    .extent = name->extent,
                                    .bytes = name->bytes};
    *out = take(s);
    if (!*out)
        return -ENOMEM;
    int rc = libcrypto_begin(s->library, (*out)->ctx, seal->nonce);
    rc = rc ? rc : seal_add(*out, &preface, sizeof(preface));
    if (rc)
        seal_drop(out);
    return rc;
}

/* seal_add - takes in the next bytes. */
int seal_add(struct sealing *g, const void *bytes, size_t n)
{
    return libcrypto_add(g->sealer->library, g->ctx, bytes, n);
}

/* seal_end - gives the tag; the seal is no longer being made, whatever the answer. */
int seal_end(struct sealing **g, uint8_t tag[SEAL_TAG_BYTES])
{
    int rc = libcrypto_end((*g)->sealer->library, (*g)->ctx, tag);
    seal_drop(g);
    return rc;
}

/* seal_drop - gives up a seal that is being made, if one is. */
void seal_drop(struct sealing **g)
{
    if (*g)
        put_back(*g);
    *g = NULL;
}

/* seal_same - whether two tags are equal, in a time that does not tell where they are
 * not. */
bool seal_same(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0;
    for (int i = 0; i < SEAL_TAG_BYTES; i++)
        difference |= a[i] ^ b[i];
    return !difference;
}
