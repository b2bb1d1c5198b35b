/* libcrypto.h - the system's OpenSSL library, loaded when it is first asked for. */
#ifndef MONARCH_LIBCRYPTO_H
#define MONARCH_LIBCRYPTO_H

#include <stddef.h>
#include <stdint.h>

struct libcrypto { /* its functions, by their types in OpenSSL's evp.h */
    const char *name;
    void *(*ctx_new)(void);
    void (*ctx_free)(void *ctx);
    int (*ctx_ctrl)(void *ctx, int type, int n, void *out);
    int (*init)(void *ctx, const void *cipher, void *engine, const uint8_t *key,
                const uint8_t *iv);
    int (*update)(void *ctx, uint8_t *out, int *out_bytes, const uint8_t *in, int n);
    int (*final)(void *ctx, uint8_t *out, int *out_bytes);
    const void *(*cipher)(void);
};

const struct libcrypto *libcrypto_load(void);
void *libcrypto_keyed(const struct libcrypto *c, const uint8_t *key);
int libcrypto_begin(const struct libcrypto *c, void *ctx, const uint8_t *nonce);
int libcrypto_add(const struct libcrypto *c, void *ctx, const void *bytes, size_t n);
int libcrypto_end(const struct libcrypto *c, void *ctx, uint8_t *tag);

#endif
