/* codec_libraries.c - loads the system's libzstd and liblz4 at run time: the wheels of
 * Python's bindings export none of their functions, and a node may have neither. */
#include "dataplane/media/codec_libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

static struct libzstd zstd;
static struct liblz4 lz4;

/* find - looks up one function; POSIX lets dlsym() return function pointers as void *. */
static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    *(void **)function = found;
    return found;
}

static bool find_zstd(void *library, struct libzstd *z)
{
    return find(library, "ZSTD_createCCtx", &z->compressor_new) &&
           find(library, "ZSTD_freeCCtx", &z->compressor_free) &&
           find(library, "ZSTD_createDCtx", &z->decompressor_new) &&
           find(library, "ZSTD_freeDCtx", &z->decompressor_free) &&
           find(library, "ZSTD_compressCCtx", &z->compress) &&
           find(library, "ZSTD_decompressDCtx", &z->decompress) &&
           find(library, "ZSTD_createCDict", &z->packing_dictionary_new) &&
           find(library, "ZSTD_freeCDict", &z->packing_dictionary_free) &&
           find(library, "ZSTD_createDDict", &z->unpacking_dictionary_new) &&
           find(library, "ZSTD_freeDDict", &z->unpacking_dictionary_free) &&
           find(library, "ZSTD_compress_usingCDict", &z->compress_with) &&
           find(library, "ZSTD_decompress_usingDDict", &z->decompress_with) &&
           find(library, "ZSTD_isError", &z->is_error);
}

static bool find_lz4(void *library, struct liblz4 *l)
{
    return find(library, "LZ4_sizeofState", &l->state_bytes) &&
           find(library, "LZ4_sizeofStateHC", &l->state_bytes_hc) &&
           find(library, "LZ4_compress_fast_extState", &l->compress) &&
           find(library, "LZ4_compress_HC_extStateHC", &l->compress_hc) &&
           find(library, "LZ4_decompress_safe", &l->decompress);
}

static void load_zstd(void)
{
    struct libzstd found = {.name = "libzstd.so.1"};
    void *library = dlopen(found.name, RTLD_NOW | RTLD_LOCAL);
    if (library && find_zstd(library, &found))
        zstd = found;
    else if (library)
        dlclose(library);
}

static void load_lz4(void)
{
    struct liblz4 found = {.name = "liblz4.so.1"};
    void *library = dlopen(found.name, RTLD_NOW | RTLD_LOCAL);
    if (library && find_lz4(library, &found))
        lz4 = found;
    else if (library)
        dlclose(library);
}

/* libzstd_load - loads libzstd at the first call; NULL: no library has all functions. */
const struct libzstd *libzstd_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_zstd);
    return zstd.name ? &zstd : NULL;
}

/* liblz4_load - does the same for liblz4. */
const struct liblz4 *liblz4_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_lz4);
    return lz4.name ? &lz4 : NULL;
}
