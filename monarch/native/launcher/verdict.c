/* verdict.c - what became of the attempt to have an agent. */
#include "verdict.h"

#include <stdarg.h>
#include <stdio.h>

/* verdict_of - a verdict and its reason, for one line on stderr. */
struct verdict verdict_of(enum verdict_kind kind, const char *format, ...)
{
    struct verdict verdict = {.kind = kind};
    va_list args;

    va_start(args, format);
    vsnprintf(verdict.text, sizeof(verdict.text), format, args);
    va_end(args);
    return verdict;
}
