/* words.h - files whose 8-byte words each hold their file, version and offset. */
#ifndef LARGE_WORDS_H
#define LARGE_WORDS_H

#include <stdint.h>
#include <string.h>
#include <sys/types.h>

enum { WORD = 8, BLOCK = 256 << 10, EXTENT = 8 << 20 };

/* mix - one word for another, as if at random; unmix is its inverse. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t unmix(uint64_t x)
{
    x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3u;
    x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089u;
    return x ^ (x >> 30) ^ (x >> 60);
}

/* The content of a word. `file` counts from 1, so that zeros are no word of a file. */
struct word {
    unsigned file, version;
    uint64_t place; /* in words from the start */
};

static inline uint64_t word_of(unsigned file, unsigned version, uint64_t place)
{
    return mix((uint64_t)file << 48 | (uint64_t)version << 40 | place);
}

static inline struct word told_by(uint64_t word)
{
    uint64_t plain = unmix(word);
    return (struct word){(unsigned)(plain >> 48), (unsigned)(plain >> 40 & 0xff),
                         plain & 0xffffffffff};
}

static inline uint64_t load_word(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, WORD);
    return word;
}

/* fill_words - the bytes of a file from an offset on; both are multiples of a word. */
static inline void fill_words(char *bytes, size_t size, off_t at, struct word of)
{
    for (size_t i = 0; i < size; i += WORD) {
        uint64_t word = word_of(of.file, of.version, ((uint64_t)at + i) / WORD);
        memcpy(bytes + i, &word, WORD);
    }
}

/* wrong_word - the first whole word, of bytes read at an offset, that no version up to
 * `of.version` of the file has there, as an offset in them; -1: all are right.
 * `of.place`: whether a word may be zero, too. */
static inline ssize_t wrong_word(const char *bytes, size_t size, off_t at,
                                 struct word of)
{
    for (size_t i = (size_t)(-at & (WORD - 1)); i + WORD <= size; i += WORD) {
        uint64_t word = load_word(bytes + i);
        struct word told = told_by(word);
        int right = told.file == of.file && told.version <= of.version &&
                    told.place == ((uint64_t)at + i) / WORD;
        if (!right && !(of.place && word == 0))
            return (ssize_t)i;
    }
    return -1;
}

/* digest - of bytes, the same on every run. */
static inline uint64_t digest(const char *bytes, size_t size)
{
    uint64_t sum = size, last = 0;
    size_t i = 0;
    for (; i + WORD <= size; i += WORD)
        sum = (sum ^ load_word(bytes + i)) * 0x9e3779b97f4a7c15u ^ sum >> 29;
    memcpy(&last, bytes + i, size - i);
    return mix(sum ^ last);
}

#endif
