/* hint_claims.h - Files whose hints were processed and that programs have not opened. */
#ifndef MONARCH_HINT_CLAIMS_H
#define MONARCH_HINT_CLAIMS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dataplane/base/ring.h"

struct claims {
    /* Per File, modulo 256: processed hints, and opens. A positive difference is the number of
     * expected opens, a negative one that of opens before their hints were processed. */
    _Atomic uint8_t *taken;
    _Atomic uint8_t *opened; /* counted by programs */
    const uint64_t *sizes;
    struct ring pooled; /* struct claim: on Files in the Pool */
    uint64_t bytes;     /* room of these Files */
    uint64_t next;      /* number of the next claim */
    uint64_t last_open; /* number of the last opened claim, plus 1 */
    uint64_t given_up;
};

int claims_init(struct claims *c, uint64_t files);
void claims_free(struct claims *c);
int claims_due(const struct claims *c, uint32_t file);
bool claims_absorb(struct claims *c, uint32_t file);
void claims_take(struct claims *c, uint32_t file);
bool claims_take_pooled(struct claims *c, uint32_t file, uint64_t program);
bool claims_drop(struct claims *c);
void claims_forget(struct claims *c, uint64_t program);

#endif
