/* layout_dump.c - the shared structures and enums as a text, from which Python builds its
 * own views: no layout is written twice.
 *
 * One line per fact, words separated by one blank:
 *
 *   struct NAME BYTES
 *   field STRUCT NAME OFFSET BYTES KIND     KIND: u1 u2 u4 u8 i4 i8 p8 S<bytes> or a struct
 *   enum NAME MEMBER VALUE
 *   constant NAME VALUE
 *   counter NAME UNIT TEXT...               in the order of their numbers
 *
 * A field whose BYTES are a multiple of its KIND's is an array; a flexible one has 0.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "dataplane/wire.h"
#include "dataplane/api.h"
#include "shared/layout.h"

enum { TEXT_BYTES_MAX = 32 << 10 };

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
        const uint64_t *: "p8", \
        struct segment: "segment", \
        struct monarch_seal: "monarch_seal", \
        struct root *: "root", \
        struct tier *: "tier", \
        struct process *: "process", \
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

static const struct row rows[] = {
#include "dataplane/layout_rows.def"
};

static const char counter_lines[] =
#define COUNTER(name, unit, text) "counter " #name " " #unit " " text "\n"
#include "shared/counters.def"
#undef COUNTER
    ;

static char text[TEXT_BYTES_MAX];

/* append - appends a formatted piece; a test detects a text that is truncated. */
__attribute__((format(printf, 2, 3))) static size_t append(size_t at,
                                                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text + at, sizeof(text) - at, format, arguments);
    va_end(arguments);
    size_t room = sizeof(text) - 1 - at;
    return at + ((size_t)n < room ? (size_t)n : room);
}

static size_t append_row(size_t at, const struct row *r)
{
    at = append(at, "%s", r->line);
    if (r->owner)
        at = append(at, " %s", r->owner);
    if (r->name)
        at = append(at, " %s %llu", r->name, (unsigned long long)r->value);
    if (r->kind)
        return append(at, " %llu %s\n", (unsigned long long)r->bytes, r->kind);
    if (!r->name)
        return append(at, " %llu\n", (unsigned long long)r->bytes);
    return append(at, "\n");
}

static void write_text(void)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        at = append_row(at, &rows[i]);
    append(at, "%s", counter_lines);
}

/* monarch_layout - the text, formatted at the first call; valid as long as the
 * library. */
const char *monarch_layout(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_text);
    return text;
}
