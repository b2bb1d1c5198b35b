/* api.h - the interface of libmonarch.so for Python: the shared layouts as a text, functions of
 * shared/, and the engine that copies Files. Functions of a floor below are declared there.
 *
 * Functions return 0 or -errno unless their comment says otherwise. None takes the GIL.
 */
#ifndef MONARCH_API_H
#define MONARCH_API_H

#include <stddef.h>
#include <stdint.h>

#include "dataplane/demand/demand_api.h"
#include "dataplane/base/lru.h"
#include "dataplane/extents/packs.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table_api.h"
#include "dataplane/media/codec.h"
#include "dataplane/peers/peers_api.h"
#include "dataplane/transfers/transfers_api.h"

/* ---- layouts and look-ups ------------------------------------------------------- */

MONARCH_API const char *monarch_layout(void);
MONARCH_API uint64_t monarch_hash(const void *bytes, size_t n, uint64_t seed);
MONARCH_API uint64_t monarch_wait_bucket_ns(uint32_t bucket);
MONARCH_API int monarch_index_finish(void *block, size_t length);
MONARCH_API int monarch_index_check(const void *block, size_t length);
MONARCH_API int monarch_home_choose(const char *base, int make, char *out);
MONARCH_API int monarch_home_list(const char *base, char *out);
MONARCH_API int64_t monarch_index_find(const void *block, const char *rel, size_t n);
MONARCH_API int monarch_inodes_unstable(const char *directory);
MONARCH_API int monarch_file_system_traits(const char *directory);
MONARCH_API int64_t monarch_index_find_inode(const void *block, uint64_t dev,
                                             uint64_t ino);
MONARCH_API void monarch_replica_name(const void *block, uint64_t root_hash,
                                      uint32_t entry, char out[32]);

/* ---- words that other processes wait for ----------------------------------------- */

MONARCH_API void monarch_catalog_state_store(void *requests, uint32_t state);
MONARCH_API void monarch_changes_apply(const void *outline, void *changes,
                                       const void *catalog, void *flags);

/* ---- rights and mounts of this process -------------------------------------------- */

MONARCH_API void monarch_rights_read(void *rights);
MONARCH_API uint32_t monarch_rights_mark(void);
MONARCH_API int monarch_mounts_cover(const void *block, const char *directory,
                                     size_t n);

/* ---- scan ------------------------------------------------------------------------- */

enum { SCAN_LIST_BYTES = 64 << 10 };

struct monarch_found { /* the metadata of a name, as the kernel reports it */
    uint64_t ino, size, blocks, dev, nlink, blksize;
    int64_t mtime_s, ctime_s, atime_s;
    uint32_t mtime_ns, ctime_ns, atime_ns;
    uint32_t mode, uid, gid;
    uint32_t readable; /* 1: faccessat() succeeded; 0: it failed or was not called */
    int32_t status;    /* 0 or -errno: nothing else is set */
};

struct monarch_row { /* metadata as the Catalog has it */
    uint64_t ino, size;
    int64_t mtime_ns, ctime_ns, atime_ns;
    uint32_t blocks; /* NONE32: too many, or other values do not fit: ask the origin */
    uint32_t attr;   /* number of the attributes that many names share */
};

enum scan_kind {
    SCAN_FILE = 0,
    SCAN_DIRECTORY,
    SCAN_LINK,
    SCAN_SPECIAL,    /* not a file, directory or link */
    SCAN_MOUNT,      /* a directory of another file system */
    SCAN_ABSURD,     /* the Catalog cannot represent the metadata */
    SCAN_GONE,       /* removed since the directory was read */
    SCAN_UNREADABLE, /* to this process */
    SCAN_FAILED,     /* another error, perhaps temporary */
};

MONARCH_API int64_t monarch_scan_list(int fd, char *names, uint8_t *types);
MONARCH_API uint32_t monarch_scan_find(int fd, const char *names, uint32_t count,
                                       struct monarch_found *out, uint64_t limit_ns);
MONARCH_API void monarch_scan_readable(int fd, const char *names, uint32_t count,
                                       struct monarch_found *out);
MONARCH_API void monarch_scan_rows(const struct monarch_found *found, uint32_t count,
                                   uint64_t root_dev, struct monarch_row *rows,
                                   uint8_t *kinds);
MONARCH_API int monarch_rights_are_local(int fd);
MONARCH_API int monarch_is_pseudo(int fd);

/* ---- engine ----------------------------------------------------------------------- */

struct monarch_segments { /* mapped; borrowed until monarch_engine_free() */
    void *catalog, *flags, *requests, *inodes;
};

struct engine;

MONARCH_API int monarch_engine_new(const struct monarch_segments *segments,
                                   const struct monarch_options *options,
                                   struct engine **out);
MONARCH_API int monarch_engine_event_fd(const struct engine *e);
MONARCH_API uint32_t monarch_engine_requests(struct engine *e, uint32_t *files,
                                             uint32_t max);
MONARCH_API uint32_t monarch_engine_submit(struct engine *e,
                                           const struct monarch_order *orders,
                                           uint32_t n);
MONARCH_API uint32_t monarch_engine_completions(struct engine *e,
                                                struct monarch_completion *out,
                                                uint32_t max);
MONARCH_API int monarch_engine_add_sibling(struct engine *e, const char *run);
MONARCH_API void monarch_engine_fill(struct engine *e, const struct monarch_fill *fill);
MONARCH_API void monarch_engine_fill_pause(struct engine *e, int paused);
MONARCH_API void monarch_engine_fill_left(struct engine *e, uint64_t out[2]);
MONARCH_API void monarch_engine_demand(struct engine *e, uint32_t file, uint32_t kind);
MONARCH_API int monarch_engine_hint(struct engine *e, uint64_t program,
                                    const uint32_t *files, uint64_t n);
MONARCH_API void monarch_engine_hints(struct engine *e, struct monarch_hint_tally *out);
MONARCH_API void monarch_engine_set_background(struct engine *e, uint32_t n,
                                               uint32_t beside);
MONARCH_API void monarch_engine_set_readers(struct engine *e, uint32_t n);
MONARCH_API void monarch_engine_readers(struct engine *e, struct monarch_readers *out);
MONARCH_API uint32_t monarch_engine_demands(struct engine *e, uint64_t *pairs,
                                            uint32_t max);
MONARCH_API uint32_t monarch_engine_slowest(struct engine *e, uint64_t *rows);
MONARCH_API void monarch_engine_pace(struct engine *e, uint64_t out[PACE_COUNT]);
MONARCH_API void monarch_engine_health(struct engine *e, struct monarch_health *out);
MONARCH_API void monarch_engine_forget(struct engine *e, uint32_t tier, uint64_t ino);
MONARCH_API uint64_t monarch_engine_drop_partial(struct engine *e, uint32_t tier,
                                                 uint64_t bytes, uint32_t reason);
MONARCH_API void monarch_engine_keep(struct engine *e, uint32_t tier, uint64_t ino);
MONARCH_API uint64_t monarch_engine_drop_packed(struct engine *e, uint32_t tier,
                                                uint64_t bytes, uint32_t reason);
MONARCH_API int64_t monarch_engine_adopt_pack(struct engine *e,
                                              const struct monarch_pack *pack);
MONARCH_API int monarch_engine_free(struct engine *e, uint32_t timeout_ms);

/* ---- peers ------------------------------------------------------------------------ */

MONARCH_API int monarch_server_new(struct engine *e,
                                   const struct monarch_server_options *options,
                                   struct server **out);
MONARCH_API int monarch_receiver_new(struct engine *e,
                                     const struct monarch_receiver_options *options,
                                     struct receiver **out);

#endif
