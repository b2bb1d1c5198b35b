/* words.h - what the launcher says on stderr. */
#ifndef MONARCH_WORDS_H
#define MONARCH_WORDS_H

#include <stdbool.h>

void words_begin(void);
void words_quiet(void);
void words_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void words_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void words_note(const char *text);
void words_progress(const char *text);
void words_waiting(const char *text);
void words_raw(const char *text);

#endif
