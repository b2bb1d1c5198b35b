/* tables.c - an engine with a staging table and a Pool: Files that programs request
 * become READY or are refused, whatever happens to Tiers, peers and hints meanwhile,
 * and no space is lost; without Python, too. */
#include "board.h"

#include <errno.h>
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
#include "fault.h"
#include "shared/catalog.h"

enum {
    FILES = 240,
    BYTES = 6000,
    ROOM = 2 * PAGE_BYTES, /* of one File */
    PROGRAMS = 5,
    TIERS = 2,
    POOL = TIERS,
    PEERS = 3,
    TURNS = 60, /* of Python's work meanwhile */
    RETIRED_AT = TURNS / 2,
    HINTING = 7, /* programs; some do not open anything */
    PATIENCE_S = 60,
    GENERATION_BIT = 12,
};

static const uint64_t rooms[] = {80 * ROOM, 30 * ROOM, 12 * ROOM};

static struct board *board;
static struct table *table;
static struct monarch_table_row rows[FILES];
static uint64_t first[FILES + 1];
static uint32_t bases[1], to_read[FILES];
static char places[TIERS + 1][300];
static atomic_uint finished, opened, refused;

static uint32_t *words(void)
{
    return (uint32_t *)(uintptr_t)replica_word(board->catalog, 0);
}

static void replica_path(uint32_t tier, uint32_t file, char out[512])
{
    char name[REPLICA_NAME_BYTES];
    const struct catalog *cat = board->catalog;
    const void *block = (const char *)cat + cat->roots[0].block;
    monarch_replica_name(block, cat->roots[0].path_hash, file + 1, name);
    snprintf(out, 512, "%s/%.*s", places[tier], REPLICA_NAME_BYTES, name);
}

/* ---- the part of Python before --------------------------------------------------- */

/* make_places - two Tiers, and a Pool on a file system that grants leases. */
static void make_places(void)
{
    struct catalog *cat = board->catalog;
    strcpy(places[0], board->tier);
    snprintf(places[1], sizeof(places[1]), "%s/tier1", board->base);
    strcpy(places[POOL], "/dev/shm/tables.XXXXXX");
    CHECK(mkdir(places[1], 0700) == 0 && mkdtemp(places[POOL]));
    for (uint32_t i = 0; i <= POOL; i++) {
        struct stat st;
        CHECK(stat(places[i], &st) == 0 && strlen(places[i]) < TIER_PATH_MAX);
        strcpy(cat->tiers[i].path, places[i]);
        cat->tiers[i].dev = st.st_dev;
    }
    cat->tier_count = POOL + 1;
}

static void follow(uint32_t seed)
{
    for (uint32_t i = 0; i < FILES; i++) {
        bool other = (i + seed) % 3 == 2;
        rows[i] = (struct monarch_table_row){
            .destination = (uint8_t)(DESTINATION_TIER + (i + seed) % 3),
            .sources = {other ? 1 : NO_SOURCE, other ? 2 : NO_SOURCE, NO_SOURCE}};
    }
    const struct monarch_plan plan = {.rows = rows, .peers = PEERS, .uses_pool = 1};
    CHECK(monarch_table_follow(table, &plan) == 0);
}

static void make_table(void)
{
    for (uint32_t i = 0; i <= FILES; i++)
        first[i] = i;
    const struct monarch_table_options options = {
        .sizes = board->sizes,
        .words = words(),
        .marks = board->flags->written,
        .root_marks = board->flags->roots,
        .bases = bases,
        .first = first,
        .files = FILES,
        .roots = 1,
        .tiers = TIERS,
        .large_bytes = 1 << 20,
    };
    CHECK(monarch_table_new(&options, &table) == 0);
    for (uint32_t i = 0; i <= POOL; i++)
        monarch_table_set_capacity(table, i, rooms[i]);
    follow(0);
    board->options.table = table;
}

static void begin(void)
{
    board = board_new_equal(FILES, BYTES);
    make_places();
    make_table();
    board_start(board, 3, 2);
}

static void end(void)
{
    board_stop(board);
    for (uint32_t i = 0; i < FILES; i++) {
        char path[512];
        replica_path(POOL, i, path);
        unlink(path);
    }
    CHECK(rmdir(places[POOL]) == 0); /* no temporary file is left */
    board_free(board);
    monarch_table_free(table);
}

/* ---- programs --------------------------------------------------------------------- */

/* is_right - the bytes of a Replica are those of the origin. */
static bool is_right(int fd, uint32_t file)
{
    char path[512], bytes[BYTES + 1], expected[BYTES];
    board_origin_path(board, file, path);
    int origin = open(path, O_RDONLY);
    CHECK(origin >= 0 && read(origin, expected, BYTES) == BYTES);
    close(origin);
    return read(fd, bytes, sizeof(bytes)) == BYTES &&
           memcmp(bytes, expected, BYTES) == 0;
}

/* open_ready - as the Shim does: the same word afterwards means the same Replica. */
static bool open_ready(uint32_t file, uint32_t seen)
{
    char path[512];
    replica_path(STATE_TIER(seen), file, path);
    int fd = open(path, O_RDONLY);
    bool same = fd >= 0 && replica_load(board->catalog, file) == seen;
    CHECK(!same || is_right(fd, file));
    if (fd >= 0)
        close(fd);
    return same;
}

static void open_cold(uint32_t program, uint32_t file)
{
    const struct timespec slice = {.tv_nsec = 20000000};
    uint64_t until = clock_ns() + PATIENCE_S * SECOND_NS;
    for (bool ready = false; !ready;) {
        uint32_t seen = replica_load(board->catalog, file);
        if (STATE_OF(seen) == REPLICA_EVICTING ||
            (STATE_OF(seen) != REPLICA_READY && STATE_REASON(seen))) {
            atomic_fetch_add(&refused, 1);
            return;
        }
        ready = STATE_OF(seen) == REPLICA_READY && open_ready(file, seen);
        if (!ready && STATE_OF(seen) != REPLICA_STAGING)
            board_ask(board, program, file + 1ull);
        if (!ready)
            syscall(SYS_futex, &words()[file], FUTEX_WAIT, seen, &slice, NULL, 0);
        CHECK(clock_ns() < until);
    }
    atomic_fetch_add(&opened, 1);
}

static void *run_program(void *number)
{
    uint32_t program = (uint32_t)(uintptr_t)number;
    _Atomic uint8_t *opens = (_Atomic uint8_t *)board->flags + board->flags->opened;
    for (uint32_t i = 0; i < FILES; i++) {
        uint32_t file = (i * 7 + program * 13) % FILES;
        _Atomic uint32_t *waiters =
            (_Atomic uint32_t *)&board->requests->waiters[file % WAITER_COUNTS];
        atomic_fetch_add(waiters, 1);
        open_cold(program, file);
        atomic_fetch_sub(waiters, 1);
        atomic_fetch_add(&opens[file], 1);
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* ---- the part of Python meanwhile ------------------------------------------------ */

/* evict - as the memory guard does: READY, EVICTING, ABSENT. */
static void evict(uint32_t file)
{
    char path[512];
    uint32_t seen = replica_load(board->catalog, file), tier = STATE_TIER(seen);
    if (STATE_OF(seen) != REPLICA_READY || tier != 0)
        return;
    uint32_t leaving = STATE_NEXT(seen, REPLICA_EVICTING, tier, 0);
    if (!monarch_state_change(words(), file, seen, leaving, 1))
        return;
    replica_path(tier, file, path);
    CHECK(unlink(path) == 0);
    CHECK(monarch_state_change(words(), file, leaving,
                               STATE_NEXT(leaving, REPLICA_ABSENT, 0, 0), 1));
    monarch_table_remove(table, file, tier);
}

/* retire - a Tier fails: its Replicas are lost, and later ones are not served. */
static void retire(uint32_t tier)
{
    CHECK(monarch_table_retire(table, tier));
    for (uint64_t file = 0; file < FILES; file++)
        monarch_states_change(words(), &file, 1,
                              &(struct monarch_rule){STATE_WORD(0xf, 0xf, 0),
                                                     STATE_WORD(REPLICA_READY, tier, 0),
                                                     STATE_WORD(REPLICA_ABSENT, 0, 0)});
}

static void end_failed(void)
{
    struct monarch_completion done[64];
    uint32_t files[64], n = monarch_engine_completions(board->engine, done, 64);
    for (uint32_t i = 0; i < n; i++) {
        const struct monarch_order order = {.file = done[i].file,
                                            .tier = done[i].tier,
                                            .kind = done[i].kind,
                                            .peer = done[i].peer,
                                            .word = done[i].word};
        CHECK(done[i].status == -ENXIO || done[i].status == -EEXIST);
        if (!monarch_table_fail(table, &order, REASON_NONE, 1))
            CHECK(done[i].expired);
    }
    monarch_engine_requests(board->engine, files, 64); /* programs check again */
}

/* hint - Files that a program will open; may be wrong, or empty. */
static void hint(uint32_t program, uint32_t n)
{
    uint32_t files[FILES];
    for (uint32_t i = 0; i < n; i++)
        files[i] = (i * 7 + program * 13) % FILES;
    CHECK(monarch_engine_hint(board->engine, program, files, n) == 0);
}

static void disturb(uint32_t turn)
{
    struct monarch_fill fill = {.to_read = to_read, .read_count = FILES};
    if (turn % 10 == 0)
        monarch_engine_fill(board->engine, &fill);
    if (turn == RETIRED_AT)
        retire(1);
    if (turn % 7 == 3)
        follow(turn);
    if (turn % 4 == 1)
        hint(turn % HINTING, turn % 3 ? FILES : FILES / 4);
    if (turn % 5 == 0)
        monarch_table_shrink(table, 0);
    if (turn % 5 == 2)
        monarch_table_set_capacity(table, 0, rooms[0]);
    monarch_table_set_peer(table, 1 + turn % 2, turn % 3 ? 0 : PEER_USABLE);
    for (uint32_t i = 0; i < 10; i++)
        evict((turn * 10 + i) % FILES);
}

/* ---- final state ----------------------------------------------------------------- */

static uint64_t ready_bytes(uint32_t tier)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        uint32_t seen = replica_load(board->catalog, i);
        if (STATE_OF(seen) == REPLICA_READY && STATE_TIER(seen) == tier)
            sum += ROOM;
    }
    return sum;
}

static struct monarch_account account(uint32_t tier)
{
    struct monarch_account a;
    monarch_table_account(table, tier, &a);
    return a;
}

static struct monarch_tally tally(void)
{
    struct monarch_tally t;
    monarch_table_tally(table, &t);
    return t;
}

/* wait_idle - no Transfer runs, and files that left the Pool have freed their space. */
static void wait_idle(void)
{
    uint64_t until = clock_ns() + PATIENCE_S * SECOND_NS, left[2];
    do {
        poll(NULL, 0, 5);
        end_failed();
        monarch_engine_fill_left(board->engine, left);
        CHECK(clock_ns() < until);
    } while (left[0] || tally().in_flight || account(POOL).used != ready_bytes(POOL));
}

static void nothing_is_lost(void)
{
    uint64_t begun = 0;
    struct monarch_tally t = tally();
    for (uint32_t i = 0; i <= POOL; i++) {
        struct monarch_account a = account(i);
        CHECK(a.reserved == 0 && a.used == ready_bytes(i));
        CHECK(a.used <= rooms[i] && (i != 1 || !a.in_service));
    }
    for (uint32_t i = 0; i < FILES; i++)
        begun += (replica_load(board->catalog, i) & STATE_GENERATION) >> GENERATION_BIT;
    CHECK(t.demand_transfers + t.background_transfers == begun);
    CHECK(t.staged_bytes == t.staged_files * BYTES && t.peer_files == 0);
    CHECK(t.origin_read_bytes >= t.staged_bytes);
    CHECK(t.hinted_files > 0 && t.transit_files > 0 && t.background_transfers > 0 &&
          t.staged_files > FILES);
    CHECK(board_names(board, ".part") == 0);
}

/* look_at_figures - staged bytes have been read, at any moment. */
static void *look_at_figures(void *unused)
{
    (void)unused;
    while (atomic_load(&finished) < PROGRAMS) {
        struct monarch_tally t = tally();
        CHECK(t.origin_read_bytes >= t.staged_bytes);
        poll(NULL, 0, 0);
    }
    return NULL;
}

static void whatever_happens_programs_get_what_they_ask_for(void)
{
    pthread_t programs[PROGRAMS], looks;
    begin();
    for (uint32_t i = 0; i < FILES; i++)
        to_read[i] = i;
    for (uintptr_t i = 0; i < PROGRAMS; i++)
        CHECK(!pthread_create(&programs[i], NULL, run_program, (void *)i));
    CHECK(!pthread_create(&looks, NULL, look_at_figures, NULL));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        disturb(turn);
        for (int i = 0; i < 5; i++) {
            end_failed();
            poll(NULL, 0, 2);
        }
    }
    for (uint32_t peer = 0; peer < PEERS; peer++)
        monarch_table_set_peer(table, peer, 0);
    monarch_table_set_capacity(table, 0, rooms[0]);
    while (atomic_load(&finished) < PROGRAMS) {
        end_failed();
        poll(NULL, 0, 5);
    }
    for (int i = 0; i < PROGRAMS; i++)
        pthread_join(programs[i], NULL);
    pthread_join(looks, NULL);
    CHECK(opened + refused == PROGRAMS * FILES);
    CHECK(opened > PROGRAMS * FILES / 4);
    for (uint32_t i = 0; i < HINTING; i++)
        hint(i, 0);
    wait_idle();
    nothing_is_lost();
    end();
}

/* ---- nobody collects ------------------------------------------------------------------ */

static ssize_t read_nothing(int fd, void *buffer, size_t n)
{
    if (n < BYTES) /* of an event, or of /proc */
        return __real_read(fd, buffer, n);
    errno = EIO;
    return -1;
}

static void without_python_a_failed_file_is_left_to_the_origin_after_a_second(void)
{
    struct monarch_completion done;
    struct pollfd failed = {.events = POLLIN};
    begin();
    fault_read = read_nothing;
    failed.fd = monarch_engine_event_fd(board->engine);
    board_ask(board, 0, 0 + 1);
    CHECK(poll(&failed, 1, PATIENCE_S * 1000) == 1);
    uint64_t since = clock_ns();
    CHECK(STATE_OF(board_state(board, 0)) == REPLICA_STAGING);
    CHECK(account(0).reserved == ROOM);
    while (STATE_OF(board_state(board, 0)) == REPLICA_STAGING) {
        CHECK(clock_ns() - since < PATIENCE_S * SECOND_NS);
        poll(NULL, 0, 5);
    }
    CHECK(clock_ns() - since > SECOND_NS / 2);
    CHECK(board_state(board, 0) == STATE_WORD(REPLICA_ABSENT, 0, REASON_BUSY));
    CHECK(account(0).reserved == 0 && tally().in_flight == 0);
    CHECK(monarch_engine_completions(board->engine, &done, 1) == 1);
    CHECK(done.status == -EIO && done.expired == 1);
    const struct monarch_order order = {.tier = done.tier, .word = done.word};
    CHECK(!monarch_table_fail(table, &order, REASON_ERROR, 1));
    CHECK(board_state(board, 0) == STATE_WORD(REPLICA_ABSENT, 0, REASON_BUSY));
    fault_read = NULL;
    end();
}

/* ---- the time at the origin ------------------------------------------------------------ */

static uint64_t origin_busy_ns(void)
{
    uint64_t before = tally().origin_busy_ns;
    poll(NULL, 0, 2);
    return tally().origin_busy_ns - before;
}

/* Running reads count until now: a job may end before its last Transfer. */
static void the_time_at_the_origin_is_that_of_what_runs(void)
{
    begin();
    wait_idle();
    CHECK(origin_busy_ns() == 0);
    table_at_origin(table, true);
    table_at_origin(table, true);
    table_at_origin(table, false);
    CHECK(origin_busy_ns() > 0);
    table_at_origin(table, false);
    CHECK(origin_busy_ns() == 0);
    end();
}

int main(void)
{
    whatever_happens_programs_get_what_they_ask_for();
    without_python_a_failed_file_is_left_to_the_origin_after_a_second();
    the_time_at_the_origin_is_that_of_what_runs();
    return PASS;
}
