/* evictions.c - an engine whose Tier holds only a part of the Files, and evicts the
 * least recently used: programs get the right bytes of all, and the Tier never exceeds
 * its space. */
#include "board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/api/engine.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"
#include "shared/recency.h"

enum {
    FILES = 120,
    BYTES = 6000,
    ROOM = 2 * PAGE_BYTES, /* of one File */
    HELD = 40,             /* Files in the Tier */
    PROGRAMS = 6,
    OPENS = 400,
    PATIENCE_S = 60,
};

static struct board *board;
static struct table *table;
static atomic_uint finished, opened, refused;

static uint32_t *words(void)
{
    return (uint32_t *)(uintptr_t)replica_word(board->catalog, 0);
}

static struct monarch_account account(void)
{
    struct monarch_account a;
    monarch_table_account(table, 0, &a);
    return a;
}

static void begin(void)
{
    board = board_new_equal(FILES, BYTES);
    table = board_table(board, 1, 1 << 20, HELD * ROOM);
    monarch_table_evict(table, 0);
    board->flags->recency = board->recency;
    board_start(board, 3, 2);
}

static void end(void)
{
    board_stop(board);
    board_free(board);
    monarch_table_free(table);
}

/* open_ready - as the Shim does: the same word afterwards means the same Replica. */
static bool open_ready(uint32_t file, uint32_t seen)
{
    char path[512];
    uint8_t bytes[BYTES + 1];
    board_replica_path(board, file, path);
    int fd = open(path, O_RDONLY);
    bool same = fd >= 0 && replica_load(board->catalog, file) == seen;
    if (same) {
        recency_note(board->flags, file);
        CHECK(read(fd, bytes, sizeof(bytes)) == BYTES &&
              bytes_right(file, 0, bytes, BYTES));
    }
    if (fd >= 0)
        close(fd);
    return same;
}

static void open_file(uint32_t program, uint32_t file)
{
    const struct timespec slice = {.tv_nsec = 20000000};
    uint64_t until = clock_ns() + PATIENCE_S * SECOND_NS;
    for (bool ready = false; !ready;) {
        uint32_t seen = replica_load(board->catalog, file);
        if (STATE_OF(seen) != REPLICA_READY && STATE_REASON(seen)) {
            CHECK(STATE_REASON(seen) == REASON_BUSY);
            atomic_fetch_add(&refused, 1);
            return;
        }
        ready = STATE_OF(seen) == REPLICA_READY && open_ready(file, seen);
        if (!ready && STATE_OF(seen) == REPLICA_ABSENT)
            board_ask(board, program, file + 1ull);
        if (!ready)
            syscall(SYS_futex, &words()[file], FUTEX_WAIT, seen, &slice, NULL, 0);
        CHECK(clock_ns() < until);
    }
    atomic_fetch_add(&opened, 1);
}

static void *run_program(void *number)
{
    uint32_t program = (uint32_t)(uintptr_t)number, random = program * 2654435761u + 1;
    for (uint32_t i = 0; i < OPENS; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t file = (random >> 8) % FILES;
        _Atomic uint32_t *waiters =
            (_Atomic uint32_t *)&board->requests->waiters[file % WAITER_COUNTS];
        atomic_fetch_add(waiters, 1);
        open_file(program, file);
        atomic_fetch_sub(waiters, 1);
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

static uint64_t ready_bytes(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < FILES; i++)
        if (STATE_OF(replica_load(board->catalog, i)) == REPLICA_READY)
            sum += ROOM;
    return sum;
}

static void programs_get_all_files_of_a_tier_that_holds_a_part(void)
{
    pthread_t programs[PROGRAMS];
    begin();
    for (uintptr_t i = 0; i < PROGRAMS; i++)
        CHECK(!pthread_create(&programs[i], NULL, run_program, (void *)i));
    while (atomic_load(&finished) < PROGRAMS) {
        struct monarch_account a = account();
        CHECK(a.used + a.reserved <= a.capacity);
        poll(NULL, 0, 1);
    }
    for (int i = 0; i < PROGRAMS; i++)
        pthread_join(programs[i], NULL);
    CHECK(opened + refused == PROGRAMS * OPENS);
    CHECK(opened > PROGRAMS * OPENS * 9 / 10);
    CHECK(account().evicted_files > FILES);
    uint64_t until = clock_ns() + PATIENCE_S * SECOND_NS;
    while (account().reserved || account().used != ready_bytes()) {
        CHECK(clock_ns() < until); /* files that programs closed free their space */
        poll(NULL, 0, 5);
    }
    end();
}

int main(void)
{
    programs_get_all_files_of_a_tier_that_holds_a_part();
    return PASS;
}
