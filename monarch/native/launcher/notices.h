/* notices.h - the lines that a starting and an ending agent writes to its launcher. */
#ifndef MONARCH_NOTICES_H
#define MONARCH_NOTICES_H

#include <stdbool.h>
#include <stddef.h>

enum { NOTICE_BYTES_MAX = 16384 }; /* of a longer line the rest is dropped */

enum notice_kind {
    NOTICE_NONE, /* no whole line has come yet */
    NOTICE_UNKNOWN,
    NOTICE_PROGRESS,
    NOTICE_WARN,
    NOTICE_READY,
    NOTICE_FAIL,
    NOTICE_PLAIN,
    NOTICE_SAY,
    NOTICE_DONE, /* the report is given on another node */
};

struct notice {
    enum notice_kind kind;
    int code;         /* of NOTICE_FAIL */
    const char *text; /* until the next call */
};

struct notices {
    int fd; /* -1 = at its end */
    size_t begin, end;
    bool skipping; /* behind the end of a line that was too long */
    char bytes[NOTICE_BYTES_MAX];
};

void notices_begin(struct notices *notices, int fd);
bool notices_read(struct notices *notices, int timeout_ms);
struct notice notices_next(struct notices *notices);
void notices_close(struct notices *notices);

#endif
