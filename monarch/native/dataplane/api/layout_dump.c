/* layout_dump.c - writes the shared structures and enums as a text, from which Python builds its
 * own views: no layout is written twice.
 *
 * One line per fact, words separated by one blank:
 *
 * struct NAME BYTES field STRUCT NAME OFFSET BYTES KIND KIND: u1 u2 u4 u8 i4 i8 p8 S<bytes> or a
 * struct enum NAME MEMBER VALUE constant NAME VALUE counter NAME UNIT TEXT... in the order of their
 * numbers
 *
 * A field whose BYTES are a multiple of its KIND's is an array; a flexible one has 0.
 */
#include "dataplane/api/layout_dump.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "dataplane/extents/packs.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/pack_index.h"
#include "dataplane/peers/wire.h"
#include "shared/changes.h"
#include "shared/mountinfo.h"
#include "shared/presence.h"

enum { TEXT_BYTES_MAX = 32 << 10 };

static const struct row rows[] = {
#include "dataplane/api/layout_rows.def"
#include "dataplane/api/layout_values.def"
};

static const char counter_lines[] =
#define COUNTER(name, unit, text) "counter " #name " " #unit " " text "\n"
#include "shared/counter_names.def"
#undef COUNTER
    ;

static char text[TEXT_BYTES_MAX];

/* append - appends a formatted piece; a test detects a truncated text. */
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
    for (const struct row *r = scan_layout; r->line; r++)
        at = append_row(at, r);
    append(at, "%s", counter_lines);
}

/* monarch_layout - returns the text, formatted at the first call; valid as long as the library. */
const char *monarch_layout(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_text);
    return text;
}
