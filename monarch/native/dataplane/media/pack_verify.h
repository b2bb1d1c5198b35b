/* pack_verify.h - verifies frames of retained Tiers by their checksums. */
#ifndef MONARCH_PACK_VERIFY_H
#define MONARCH_PACK_VERIFY_H

#include "dataplane/media/codec.h"
#include "dataplane/media/pack_index.h"

MONARCH_API int monarch_pack_verify(int fd, const struct monarch_pack_entry *one,
                                    const struct monarch_packing *packing);

#endif
