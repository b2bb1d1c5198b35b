/* packed.c - a small job with a packed Tier and a Pool, for tests of frames. */
#include "packed.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "dataplane/media/codec.h"
#include "shared/catalog.h"

struct board *board;
struct table *table;
struct monarch_packing packing = {.tier = TIER, .method = METHOD_LZ4, .shuffle = 1};
atomic_uint served, asked_in_vain;

static void add_pool(void)
{
    struct catalog *cat = board->catalog;
    char *path = cat->tiers[POOL].path;
    CHECK(snprintf(path, TIER_PATH_MAX, "%s/pool", board->base) < TIER_PATH_MAX);
    CHECK(mkdir(path, 0700) == 0);
    cat->tiers[POOL].dev = cat->tiers[TIER].dev;
    cat->tier_count = 2;
}

void begin_job_with(const uint64_t *sizes, uint64_t tier_bytes)
{
    board = sizes ? board_new(FILES, sizes) : board_new_equal(FILES, SIZE);
    add_pool();
    table = board_table(board, 1, EXTENT_BYTES, tier_bytes);
    monarch_table_pack(table, TIER, 1024, 0);
    monarch_table_set_capacity(table, POOL, POOL_FILES * 40960);
    board->options.packings = &packing;
    board->options.packing_count = 1;
    board_start(board, 4, 2);
}

void begin_job(uint64_t tier_bytes)
{
    begin_job_with(NULL, tier_bytes);
}

void end_job(void)
{
    board_stop(board);
    monarch_table_free(table);
    board_free(board);
}

/* read_pool - reads the Replica as a program does; false: it is not there now. */
static bool read_pool(uint32_t file)
{
    static _Thread_local uint8_t bytes[LARGE + 1];
    char path[512 + TIER_PATH_MAX], place[512];
    board_replica_path(board, file, place);
    snprintf(path, sizeof(path), "%s%s", board->catalog->tiers[POOL].path,
             strrchr(place, '/'));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, bytes, sizeof(bytes));
    close(fd);
    CHECK(n == (ssize_t)board->sizes[file]);
    CHECK(bytes_right(file, 0, bytes, (size_t)n));
    return true;
}

static _Atomic uint32_t *waiters(uint32_t file)
{
    return (_Atomic uint32_t *)&board->requests->waiters[file % WAITER_COUNTS];
}

/* open_one - as the Shim does: requests, waits, opens. */
void open_one(uint32_t file)
{
    bool got = false;
    atomic_fetch_add(waiters(file), 1);
    for (int i = 0; i < 200 && !got; i++) {
        uint32_t word = replica_load(board->catalog, file);
        if (STATE_OF(word) == REPLICA_READY)
            got = read_pool(file);
        else if (STATE_REASON(word) != REASON_NONE)
            break;
        else
            monarch_engine_demand(board->engine, file, MONARCH_ASKED);
        if (!got)
            poll(NULL, 0, 1);
    }
    atomic_fetch_sub(waiters(file), 1);
    atomic_fetch_add(got ? &served : &asked_in_vain, 1);
}

void fill_all(uint32_t *files)
{
    for (uint32_t i = 0; i < FILES; i++)
        files[i] = i;
    monarch_engine_fill(board->engine,
                        &(struct monarch_fill){.to_read = files, .read_count = FILES});
}

struct monarch_tally tally_now(void)
{
    struct monarch_tally tally;
    monarch_table_tally(table, &tally);
    return tally;
}

void await_packed(void)
{
    static uint32_t files[FILES];
    uint64_t left[2], again = 0;
    for (int i = 0; i < 3000 && tally_now().packed_files < FILES; i++) {
        poll(NULL, 0, 10);
        monarch_engine_fill_left(board->engine, left);
        if (left[0] || left[1] || tally_now().again == again)
            continue;
        again = tally_now().again; /* as the stager does for refused Files */
        fill_all(files);
    }
}
