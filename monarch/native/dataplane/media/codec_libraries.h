/* codec_libraries.h - the functions used of libzstd and liblz4, with the types of their headers
 * zstd.h, lz4.h and lz4hc.h, which need not be installed. */
#ifndef MONARCH_CODEC_LIBRARIES_H
#define MONARCH_CODEC_LIBRARIES_H

#include <stddef.h>

struct libzstd {
    const char *name;
    void *(*compressor_new)(void);
    size_t (*compressor_free)(void *compressor);
    void *(*decompressor_new)(void);
    size_t (*decompressor_free)(void *decompressor);
    size_t (*compress)(void *compressor, void *out, size_t room, const void *bytes,
                       size_t n, int level);
    size_t (*decompress)(void *decompressor, void *out, size_t room, const void *packed,
                         size_t n);
    void *(*packing_dictionary_new)(const void *bytes, size_t n, int level);
    size_t (*packing_dictionary_free)(void *dictionary);
    void *(*unpacking_dictionary_new)(const void *bytes, size_t n);
    size_t (*unpacking_dictionary_free)(void *dictionary);
    size_t (*compress_with)(void *compressor, void *out, size_t room, const void *bytes,
                            size_t n, const void *dictionary);
    size_t (*decompress_with)(void *decompressor, void *out, size_t room,
                              const void *packed, size_t n, const void *dictionary);
    unsigned (*is_error)(size_t result);
};

struct liblz4 {
    const char *name;
    int (*state_bytes)(void);
    int (*state_bytes_hc)(void);
    int (*compress)(void *state, const char *bytes, char *out, int n, int room,
                    int acceleration);
    int (*compress_hc)(void *state, const char *bytes, char *out, int n, int room,
                       int level);
    int (*decompress)(const char *packed, char *out, int n, int room);
};

const struct libzstd *libzstd_load(void);
const struct liblz4 *liblz4_load(void);

#endif
