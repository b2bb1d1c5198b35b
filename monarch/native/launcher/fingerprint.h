/* fingerprint.h - a number that tells texts apart. */
#ifndef MONARCH_FINGERPRINT_H
#define MONARCH_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

#define FINGERPRINT_NONE UINT64_C(0xcbf29ce484222325)

uint64_t fingerprint_bytes(uint64_t print, const void *bytes, size_t size);
uint64_t fingerprint_text(uint64_t print, const char *text);
uint64_t fingerprint_number(uint64_t print, uint64_t number);

#endif
