/* test_changes.c - changes before the Catalog exists: none is lost at any time.
 *
 *   test_changes RUN TIER ROOT
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "board_build.h"
#include "../shared/check.h"
#include "shim/names/mark.h"
#include "shim/names/mounts.h"
#include "shim/base/process.h"
#include "shim/names/segments.h"

enum { THREADS = 4, ROUNDS = 24, DISTINCT = 3000 };

static struct segments outline;
static struct built board;
static _Atomic uint8_t
    *returned; /* per File: its change has come back to the program */
static _Atomic uint32_t changing;

static struct stat stat_of(uint32_t file)
{
    const struct entry *e = index_first(board.index, file);
    return (struct stat){.st_dev = index_attr(board.index, e)->dev, .st_ino = e->ino};
}

static void *add_all(void *kind)
{
    for (uint64_t n = 0; n < 2 * DISTINCT; n++) {
        const struct change_seen seen = {7, 1 + n % DISTINCT, 0,
                                         (uint32_t)(uintptr_t)kind};
        CHECK(changes_add(outline.changes, &seen));
    }
    return NULL;
}

/* check_table - threads that add the same files usually fill one slot each, and lose no
 * kind of change; a full table is reported. */
static void check_table(void)
{
    pthread_t threads[THREADS];
    uint32_t kinds[DISTINCT + 1] = {0}, used = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, add_all, (void *)((uintptr_t)1 << i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < CHANGES_MAX; i++) {
        const struct changed *slot = &outline.changes->slots[i];
        used += slot->ino != 0;
        CHECK(!slot->ino || (slot->ino <= DISTINCT && slot->dev == 7));
        kinds[slot->ino] |= slot->kinds;
    }
    for (uint32_t ino = 1; ino <= DISTINCT; ino++)
        CHECK(kinds[ino] == (1u << THREADS) - 1);
    /* Threads in step may both miss a file; each alone would fill as many again. */
    CHECK(used < 2 * DISTINCT);
    for (uint64_t ino = DISTINCT + 1; used < CHANGES_MAX; ino++, used++)
        CHECK(changes_add(outline.changes, &(struct change_seen){7, ino, 0, 1}));
    CHECK(!changes_add(outline.changes, &(struct change_seen){7, 1u << 30, 0, 1}));
    CHECK(changes_add(outline.changes, &(struct change_seen){7, 1, 0, 1}));
}

static void begin_anew(void)
{
    memset(outline.changes, 0, sizeof(*outline.changes));
    memset(board.flags->written, 0, board.flags->count);
    memset(board.flags->roots, 0, sizeof(board.flags->roots));
    memset(outline.flags->roots, 0, sizeof(outline.flags->roots));
    board.requests->catalog = CATALOG_NONE;
    for (uint32_t f = 0; f < board.catalog->file_count; f++)
        atomic_store(&returned[f], 0);
}

/* check_settling - a process that found no Catalog before its change marks it itself,
 * if one exists after it. */
static void check_settling(void)
{
    const struct stat st = stat_of(0);
    begin_anew();
    mark_object(&outline, &st, CHANGE_BYTES);
    CHECK(!board.flags->written[0]);
    board.requests->catalog = CATALOG_SETTLING;
    mark_object(&outline, &st, CHANGE_NAME);
    CHECK(board.flags->written[0] == (MARKED | MARKED_BYTES | MARKED_NAME));
    mark_root(&outline, 0, MARKED);
    CHECK(board.flags->roots[0] == MARKED);
    uint32_t before = board.flags->mounts;
    mounts_moved(&outline);
    CHECK(board.flags->mounts == before + 1);
}

/* check_below - an object with another identity in the Catalog marks its root. */
static void check_below(void)
{
    const struct stat unknown = {.st_dev = 1, .st_ino = 1};
    begin_anew();
    mark_below(&outline, 0, &unknown, CHANGE_BYTES);
    board_serve(&board);
    CHECK(board.flags->roots[0] == MARKED_ALL);
}

static void *change_files(void *first)
{
    for (uint32_t f = (uint32_t)(uintptr_t)first; f < board.catalog->file_count;
         f += THREADS) {
        const struct stat st = stat_of(f);
        mark_object(&outline, &st, CHANGE_BYTES);
        atomic_store(&returned[f], 1);
    }
    atomic_fetch_sub(&changing, 1);
    return NULL;
}

static bool marked(uint32_t file)
{
    return atomic_load((_Atomic uint8_t *)&board.flags->written[file]) != 0;
}

/* check_race - changes that returned before the Catalog is served are marked in it. */
static void check_race(unsigned pause)
{
    pthread_t threads[THREADS];
    begin_anew();
    atomic_store(&changing, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, change_files, (void *)i);
    for (volatile unsigned n = 0; n < pause; n++) {
    }
    board_serve(&board);
    for (bool last = false; !last;) {
        last = atomic_load(&changing) == 0;
        for (uint32_t f = 0; f < board.catalog->file_count; f++)
            CHECK(!atomic_load(&returned[f]) || marked(f));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct plan plan = {.run = argv[1], .tier = argv[2], .root = argv[3]};
    plan.outline = true;
    board = board_build(&plan);
    outline.run_bytes = strlen(plan.run);
    memcpy(outline.run, plan.run, outline.run_bytes + 1);
    CHECK(segments_map_outline(&outline) && process_prepare(0, true));
    process_begin(outline.counters);
    check_table();
    plan.outline = false;
    board_scan(&plan, &board);
    returned = calloc(board.catalog->file_count, 1);
    check_settling();
    check_below();
    for (unsigned i = 0; i < ROUNDS; i++)
        check_race(i * 1667 % 40000);
    free((void *)returned);
    puts("ok");
    return 0;
}
