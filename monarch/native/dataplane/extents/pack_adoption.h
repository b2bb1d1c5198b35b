/* pack_adoption.h - segments that outlive their job. */
#ifndef MONARCH_PACK_ADOPTION_H
#define MONARCH_PACK_ADOPTION_H

#include <stdint.h>

#define NO_FILE 0xffffffffu

struct partials;

struct monarch_pack { /* a segment of an earlier job */
    uint32_t tier, reserved;
    const char *name;
    const uint32_t *files; /* by entry of its index; NO_FILE: it is not wanted */
    uint64_t count;
};

int64_t pack_adoption_take(struct partials *parts, const struct monarch_pack *pack);
void pack_adoption_seal(struct partials *parts);

#endif
