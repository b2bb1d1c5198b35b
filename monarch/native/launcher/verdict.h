/* verdict.h - what became of the attempt to have an agent. */
#ifndef MONARCH_VERDICT_H
#define MONARCH_VERDICT_H

enum verdict_kind {
    VERDICT_NONE,    /* not decided yet */
    VERDICT_STAGED,  /* the catalog is there */
    VERDICT_PLAIN,   /* Monarch cannot: text says why */
    VERDICT_REFUSED, /* the command is wrong: exit with code; text says why */
    VERDICT_AGAIN,   /* that agent has gone: look again */
};

struct verdict {
    enum verdict_kind kind;
    int code;
    char text[1024];
};

struct verdict verdict_of(enum verdict_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
