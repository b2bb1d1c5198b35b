/* fingerprint.c - a number that tells texts apart: FNV-1a, which Python computes too. */
#include "fingerprint.h"

#include <string.h>

/* fingerprint_bytes - adds bytes to a fingerprint. */
uint64_t fingerprint_bytes(uint64_t print, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < size; i++)
        print = (print ^ byte[i]) * UINT64_C(0x100000001b3);
    return print;
}

/* fingerprint_text - adds a text with its end, so that "ab", "c" is not "a", "bc". */
uint64_t fingerprint_text(uint64_t print, const char *text)
{
    return fingerprint_bytes(print, text, strlen(text) + 1);
}

/* fingerprint_number - adds a number, its lowest byte first. */
uint64_t fingerprint_number(uint64_t print, uint64_t number)
{
    unsigned char bytes[8];

    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    return fingerprint_bytes(print, bytes, sizeof(bytes));
}
