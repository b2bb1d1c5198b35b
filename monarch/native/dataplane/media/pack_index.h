/* pack_index.h - the index behind the frames of a segment, by which a later job finds them.
 *
 *   frames | struct monarch_pack_entry for each frame, by offset | u64 checksum of each Block of
 *   those of large Files | struct pack_tail
 *
 * It is written when a job has ended and its Tiers are retained: a segment of a job that was
 * killed has none, and nothing in it is trusted. Integers are little-endian.
 */
#ifndef MONARCH_PACK_INDEX_H
#define MONARCH_PACK_INDEX_H

#include <stdint.h>

#include "dataplane/base/export.h"
#include "dataplane/media/frame.h"

enum {
    PACK_VERSION = 2,
    PACK_BYTES_MAX = 256 << 20, /* of the frames of a segment */
};

#define PACK_MAGIC 0x4b43415048435241u /* "ARCHPACK" */

struct monarch_pack_entry { /* a frame */
    uint8_t name[FRAME_NAME_BYTES];
    uint32_t extent; /* of a large File, else 0 */
    uint32_t plain;  /* bytes of the File, or of the Extent */
    uint32_t offset, bytes;
    uint32_t id;     /* of its codec and dictionary, see packs_id() */
    uint32_t blocks; /* with checksums in the index: of a large File, else 0 */
};

_Static_assert(sizeof(struct monarch_pack_entry) == 40, "monarch_pack_entry");

struct pack_tail {  /* the last bytes of a segment */
    uint64_t count; /* entries */
    uint32_t version;
    uint32_t blocks; /* of all entries */
    uint64_t digest; /* of entries and checksums, and of the fields above */
    uint64_t magic;
};

_Static_assert(sizeof(struct pack_tail) == 32, "pack_tail");

struct pack_list { /* the contents of an index */
    struct monarch_pack_entry *entries;
    uint64_t *digests; /* of the Blocks of the first large File, then of the next... */
    uint64_t count, blocks;
};

MONARCH_API int64_t monarch_pack_index_read(int fd, struct monarch_pack_entry *out,
                                            uint64_t max);
int pack_index_load(int fd, struct pack_list *out);
int pack_index_write(int fd, uint64_t at, const struct pack_list *list);
void pack_list_free(struct pack_list *list);

#endif
