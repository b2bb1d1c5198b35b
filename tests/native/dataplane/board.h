/* board.h - a small job for tests: origin, tier, all segments, and an engine on them. */
#ifndef TEST_BOARD_H
#define TEST_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/api/api.h"
#include "shared/layout.h"

enum { FILES_MAX = 5120, PASS = 0, SKIP = 77 };

/* CHECK - ends the test with a line that prints the failed condition. */
#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, \
                    #condition);                                             \
            _Exit(1);                                                        \
        }                                                                    \
    } while (0)

struct board {
    char base[256], origin[300], tier[300];
    uint32_t files;
    uint64_t sizes[FILES_MAX];
    uint64_t first[FILES_MAX + 1]; /* Extents, of a table */
    struct catalog *catalog;
    struct flags *flags;
    struct requests *requests;
    struct inodes *inodes;
    uint64_t *digests, *digest_first;
    struct monarch_seal *seals;
    struct monarch_options options;
    struct engine *engine;
    uint64_t recency; /* possible target of flags->recency before the engine starts */
};

extern const uint8_t board_key[SEAL_KEY_BYTES];

/* With TEST_SEALED in the environment engines make seals; with `only` they make no
 * checksums. Children share the memory of a board. Files are f0000, f0001 ... */
struct board *board_new(uint32_t files, const uint64_t *sizes);
struct board *board_new_equal(uint32_t files, uint64_t size);
void board_free(struct board *b);
void board_start(struct board *b, uint32_t threads, uint32_t background_max);
void board_stop(struct board *b);
/* board_table - for its engine, a table of one Tier that is to hold all Files, of so
 * many Extents each. */
struct table *board_table(struct board *b, uint32_t extents, uint64_t large_bytes,
                          uint64_t tier_bytes);
void board_set_key(struct board *b, const uint8_t *key); /* of later engines */

void board_origin_path(const struct board *b, uint32_t file, char out[512]);
void board_replica_path(const struct board *b, uint32_t file, char out[512]);
void board_temporary_path(const struct board *b, uint32_t file, char out[512]);
void board_resize(const char *path, off_t bytes);
void board_write_origin(const struct board *b, uint32_t file);
void board_recatalog(struct board *b, uint32_t file);
uint32_t board_state(const struct board *b, uint32_t file);
void board_set_state(struct board *b, uint32_t file, uint32_t word);
/* Pages of the origin's file in memory; dropping them works on disks only. */
size_t board_cached_pages(const struct board *b, uint32_t file);
bool board_forget_pages(const struct board *b, uint32_t file);
bool board_replica_right(const struct board *b, uint32_t file);
bool bytes_right(uint32_t file, uint64_t at, const uint8_t *bytes, size_t n);
bool board_block_right(const struct board *b, uint32_t file, uint32_t block);
bool board_page_right(const struct board *b, uint32_t file, uint32_t page);
unsigned board_names(const struct board *b, const char *suffix);

void board_submit(struct board *b, uint32_t file, uint8_t kind);
struct monarch_completion board_wait(struct board *b);
struct monarch_completion board_run(struct board *b, uint32_t file, uint8_t kind);
void board_ask(struct board *b, uint32_t slot, uint64_t value);
void board_wait_idle(struct board *b, uint32_t threads);
uint32_t board_asked(struct board *b, uint32_t *files, uint32_t max, int patience_ms);

#endif
