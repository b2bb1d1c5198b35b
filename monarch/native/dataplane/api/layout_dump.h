/* layout_dump.h - a line of the text of layout_dump.c, and the macros that make it. */
#ifndef MONARCH_LAYOUT_DUMP_H
#define MONARCH_LAYOUT_DUMP_H

#include <stddef.h>

#include "dataplane/api/api.h"
#include "shared/layout.h"

struct row {
    const char *line; /* first word of the line */
    const char *owner, *name, *kind;
    uint64_t value, bytes;
};

#define MEMBER_OF(s, f) (((struct s *)0)->f)

/* Arrays decay to pointers here, so that each has the kind of its items. */
#define KIND(x) \
    _Generic((x), \
        uint8_t: "u1", \
        uint16_t: "u2", \
        uint32_t: "u4", \
        uint64_t: "u8", \
        int32_t: "i4", \
        int64_t: "i8", \
        char *: "S1", \
        char(*)[FILTER_NAME_BYTES]: "S32", \
        uint8_t *: "u1", \
        uint16_t *: "u2", \
        uint32_t *: "u4", \
        uint64_t *: "u8", \
        void *: "p8", \
        const uint32_t *: "p8", \
        const uint64_t *: "p8", \
        struct segment: "segment", \
        struct monarch_seal: "monarch_seal", \
        struct root *: "root", \
        struct tier *: "tier", \
        struct process *: "process", \
        struct elsewhere *: "elsewhere", \
        struct changed *: "changed", \
        struct inode *: "inode", \
        struct rights: "rights")

_Static_assert(FILTER_NAME_BYTES == 32, "the kind of filter says S32");

#define STRUCT(s)                                     \
    {                                                 \
        "struct", #s, NULL, NULL, 0, sizeof(struct s) \
    }
#define TAIL(s, f)                                                       \
    {                                                                    \
        "field", #s, #f, KIND(MEMBER_OF(s, f)), offsetof(struct s, f), 0 \
    }
#define POINTER(s, f)                                                \
    {                                                                \
        "field", #s, #f, "p8", offsetof(struct s, f), sizeof(void *) \
    }
#define FIELD(s, f)                                                    \
    {                                                                  \
        "field", #s, #f, KIND(MEMBER_OF(s, f)), offsetof(struct s, f), \
            sizeof(MEMBER_OF(s, f))                                    \
    }
#define MEMBER(e, m)               \
    {                              \
        "enum", #e, #m, NULL, m, 0 \
    }
#define CONSTANT(c)                      \
    {                                    \
        "constant", NULL, #c, NULL, c, 0 \
    }

extern const struct row scan_layout[]; /* of scan.c; the last one has no line */

#endif
