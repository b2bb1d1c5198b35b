/* packs.c - threads that fill, open, evict and spoil packed Files at the same time: what a
 * program finds in the Pool is always right. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "board.h"
#include "dataplane/codec.h"
#include "dataplane/engine.h"
#include "dataplane/packs_state.h"
#include "fault.h"
#include "shared/catalog.h"

enum {
    FILES = 120,
    SIZE = 40000,
    READERS = 3,
    ROUNDS = 400,
    POOL_FILES = 16,
    MOVES = 3
};
enum { TIER, POOL };

static struct board *board;
static struct table *table;
static uint64_t first[FILES + 1];
static struct monarch_packing packing = {
    .tier = TIER, .method = METHOD_LZ4, .shuffle = 1};
static atomic_uint served, asked_in_vain;

static void add_pool(void)
{
    struct catalog *cat = board->catalog;
    char *path = cat->tiers[POOL].path;
    CHECK(snprintf(path, TIER_PATH_MAX, "%s/pool", board->base) < TIER_PATH_MAX);
    CHECK(mkdir(path, 0700) == 0);
    cat->tiers[POOL].dev = cat->tiers[TIER].dev;
    cat->tier_count = 2;
}

static void begin(uint64_t tier_bytes)
{
    static const uint32_t base;
    struct monarch_table_row rows[FILES];
    board = board_new_equal(FILES, SIZE);
    add_pool();
    for (uint32_t i = 0; i <= FILES; i++)
        first[i] = i;
    const struct monarch_table_options options = {
        .sizes = board->sizes,
        .words = (uint32_t *)(uintptr_t)replica_word(board->catalog, 0),
        .marks = board->flags->written,
        .root_marks = board->flags->roots,
        .bases = &base,
        .first = first,
        .files = FILES,
        .roots = 1,
        .tiers = 1,
        .large_bytes = EXTENT_BYTES,
    };
    for (uint32_t i = 0; i < FILES; i++)
        rows[i] = (struct monarch_table_row){
            .destination = DESTINATION_TIER,
            .sources = {NO_SOURCE, NO_SOURCE, NO_SOURCE}};
    const struct monarch_plan plan = {.rows = rows};
    CHECK(monarch_table_new(&options, &table) == 0);
    CHECK(monarch_table_follow(table, &plan) == 0);
    monarch_table_pack(table, TIER, 1024, 0);
    monarch_table_set_capacity(table, TIER, tier_bytes);
    monarch_table_set_capacity(table, POOL, POOL_FILES * 40960);
    board->options.table = table;
    board->options.packings = &packing;
    board->options.packing_count = 1;
    board_start(board, 4, 2);
}

static void end(void)
{
    board_stop(board);
    monarch_table_free(table);
    board_free(board);
}

/* read_pool - what a program finds that opens the Replica; false: it is not there now. */
static bool read_pool(uint32_t file)
{
    static _Thread_local uint8_t bytes[SIZE + 1];
    char path[512 + TIER_PATH_MAX], place[512];
    board_replica_path(board, file, place);
    snprintf(path, sizeof(path), "%s%s", board->catalog->tiers[POOL].path,
             strrchr(place, '/'));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, bytes, sizeof(bytes));
    close(fd);
    CHECK(n == SIZE && bytes_right(file, 0, bytes, SIZE));
    return true;
}

static _Atomic uint32_t *waiters(uint32_t file)
{
    return (_Atomic uint32_t *)&board->requests->waiters[file % WAITER_COUNTS];
}

/* open_one - as the Shim does: asks, waits, opens. */
static void open_one(uint32_t file)
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

static void *reader(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < ROUNDS; i++)
        open_one((uint32_t)rand_r(&state) % FILES);
    return NULL;
}

static void read_all(void)
{
    pthread_t threads[READERS];
    for (uintptr_t i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, (void *)(i + 1)) == 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}

static void fill_all(uint32_t *files)
{
    for (uint32_t i = 0; i < FILES; i++)
        files[i] = i;
    monarch_engine_fill(board->engine,
                        &(struct monarch_fill){.to_read = files, .read_count = FILES});
}

static void readers_beside_fill_find_right_bytes(void)
{
    uint32_t files[FILES];
    begin(64 << 20);
    served = asked_in_vain = 0;
    fill_all(files);
    read_all();
    struct monarch_tally tally;
    monarch_table_tally(table, &tally);
    CHECK(served > READERS * ROUNDS / 2);
    CHECK(tally.packed_files == FILES && tally.frames_dropped == 0);
    CHECK(tally.origin_read_bytes == (uint64_t)FILES * SIZE);
    end();
}

static void memory_may_be_taken_back_at_any_moment(void)
{
    uint32_t files[FILES];
    begin(64 << 20);
    served = 0;
    fill_all(files);
    for (int i = 0; i < 5; i++) {
        read_all();
        monarch_engine_drop_packed(board->engine, TIER, 1, REASON_NONE);
    }
    CHECK(served > 0);
    end();
}

/* ---- frames that move ------------------------------------------------------------------ */

static atomic_bool stopping;
static atomic_uint gone; /* Files below this one are written */

static void *reader_until_stop(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    while (!stopping) {
        uint32_t below = gone;
        open_one(below + (uint32_t)rand_r(&state) % (FILES - below));
        poll(NULL, 0, 20); /* frames move while nothing else runs */
    }
    return NULL;
}

static struct monarch_tally tally_now(void)
{
    struct monarch_tally tally;
    monarch_table_tally(table, &tally);
    return tally;
}

/* write_third - marks a third of the rest written: so much of a segment is dead then that
 * what is left of it moves into another one. */
static void write_third(void)
{
    uint32_t from = gone, to = from + (FILES - from) / 3 + 1;
    gone = to;
    for (uint32_t i = from; i < to; i++)
        __atomic_store_n(&board->flags->written[i], 1, __ATOMIC_RELEASE);
}

static void await_moved(uint64_t segments)
{
    for (int i = 0; i < 3000 && tally_now().compacted_segments < segments; i++)
        poll(NULL, 0, 10);
    CHECK(tally_now().compacted_segments >= segments);
}

static void await_packed(void)
{
    for (int i = 0; i < 3000 && tally_now().packed_files < FILES; i++)
        poll(NULL, 0, 10);
}

/* move_frames - rounds of compaction beside readers; with `drops` segments go beside them,
 * too. */
static void move_frames(bool drops)
{
    uint32_t files[FILES];
    pthread_t threads[READERS];
    begin(64 << 20);
    stopping = false;
    gone = served = 0;
    fill_all(files);
    await_packed();
    for (uintptr_t i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, reader_until_stop, (void *)(i + 1)) ==
              0);
    for (unsigned round = 1; round <= MOVES; round++) {
        write_third();
        await_moved(drops ? 1 : round);
        if (drops)
            monarch_engine_drop_packed(board->engine, TIER, 1, REASON_NONE);
    }
    stopping = true;
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}

static void frames_may_move_while_they_are_read(void)
{
    move_frames(false);
    for (uint32_t file = gone; file < FILES; file++)
        open_one(file);
    CHECK(tally_now().frames_dropped == 0 && served > 0);
    CHECK(tally_now().origin_read_bytes == (uint64_t)FILES * SIZE);
    end();
}

static void segments_may_go_while_frames_move(void)
{
    move_frames(true);
    CHECK(tally_now().frames_dropped == 0 && served > 0);
    end();
}

/* ---- a frame that moves between the reads of its head and of its bytes ------------------- */

static struct { /* the frame that is being moved */
    int fd;
    off_t at;
    size_t n;
} held;
static enum { MOVES_NOTHING, READ_TO_MOVE, READ_TO_DECODE, DECODED } _Atomic phase;

static void await_phase(unsigned wanted)
{
    for (int i = 0; i < 3000 && phase < wanted; i++)
        poll(NULL, 0, 1);
    CHECK(phase >= wanted);
}

static bool is_compaction(void)
{
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return strcmp(name, "compaction") == 0;
}

/* is_hole - there are zeros where the middle of a frame was. */
static bool is_hole(const uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[1024];
    CHECK(n > 2 * sizeof(zeros));
    return memcmp(bytes + n / 2, zeros, sizeof(zeros)) == 0;
}

/* decode_while_it_moves - the head of the frame was read; now its place is given back. */
static ssize_t decode_while_it_moves(int fd, void *buffer, size_t n, off_t at)
{
    uint64_t before = tally_now().compacted_bytes;
    phase = READ_TO_DECODE;
    for (int i = 0; i < 3000 && tally_now().compacted_bytes == before; i++)
        poll(NULL, 0, 1);
    CHECK(tally_now().compacted_bytes > before);
    ssize_t got = __real_pread(fd, buffer, n, at);
    CHECK(got == 0 || is_hole(buffer, n));
    phase = DECODED;
    return got;
}

static ssize_t held_pread(int fd, void *buffer, size_t n, off_t at)
{
    if (phase == MOVES_NOTHING && is_compaction()) {
        held.fd = fd;
        held.at = at;
        held.n = n;
        phase = READ_TO_MOVE;
        await_phase(READ_TO_DECODE);
    } else if (phase == READ_TO_MOVE && fd == held.fd && at > held.at &&
               at < held.at + (off_t)held.n) {
        return decode_while_it_moves(fd, buffer, n, at);
    }
    return __real_pread(fd, buffer, n, at);
}

static uint32_t held_file(void)
{
    const struct frame_place *places = board->engine->packs->places;
    for (uint32_t file = gone; file < FILES; file++)
        if (places[file].segment && places[file].offset == held.at)
            return file;
    return FILES;
}

static void frame_that_moves_while_it_is_decoded_is_decoded_at_its_new_place(void)
{
    uint32_t files[FILES];
    packing.method = METHOD_NONE; /* frames of several pages */
    begin(64 << 20);
    gone = served = asked_in_vain = 0;
    fill_all(files);
    await_packed();
    fault_pread = held_pread;
    write_third();
    await_phase(READ_TO_MOVE);
    CHECK(held_file() < FILES);
    open_one(held_file());
    CHECK(phase == DECODED && served == 1 && asked_in_vain == 0);
    fault_pread = NULL;
    await_moved(1);
    CHECK(tally_now().frames_dropped == 0 && tally_now().unpacked_files == 1);
    CHECK(tally_now().origin_read_bytes == (uint64_t)FILES * SIZE);
    end();
}

/* ---- segments that are dropped ---------------------------------------------------------- */

static void drop_all(void)
{
    CHECK(monarch_engine_drop_packed(board->engine, TIER, UINT64_MAX, REASON_NONE) > 0);
}

static ssize_t dropping_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    fault_pwrite = NULL;
    drop_all();
    return __real_pwrite(fd, bytes, n, at);
}

static ssize_t dropping_pread(int fd, void *buffer, size_t n, off_t at)
{
    fault_pread = NULL;
    drop_all();
    return __real_pread(fd, buffer, n, at);
}

static bool nothing_has_failed(void)
{
    struct monarch_completion done;
    return tally_now().frames_dropped == 0 &&
           monarch_engine_completions(board->engine, &done, 1) == 0;
}

static void frame_whose_segment_goes_while_it_is_written_is_written_again(void)
{
    uint32_t files[FILES], last = FILES - 1;
    begin(64 << 20);
    served = asked_in_vain = 0;
    gone = 0;
    fill_all(files);
    await_packed();
    drop_all();
    monarch_engine_fill(board->engine,
                        &(struct monarch_fill){.to_read = files, .read_count = 1});
    for (int i = 0; i < 3000 && tally_now().packed_files == FILES; i++)
        poll(NULL, 0, 1);
    fault_pwrite = dropping_pwrite;
    monarch_engine_fill(board->engine,
                        &(struct monarch_fill){.to_read = &last, .read_count = 1});
    for (int i = 0; i < 3000 && tally_now().packed_files == FILES + 1; i++)
        poll(NULL, 0, 1);
    CHECK(!fault_pwrite && tally_now().packed_files == FILES + 2);
    open_one(last);
    CHECK(served == 1 && tally_now().unpacked_files == 1 && nothing_has_failed());
    end();
}

static void frame_that_goes_while_it_is_decoded_is_no_error(void)
{
    uint32_t files[FILES];
    begin(64 << 20);
    served = asked_in_vain = 0;
    fill_all(files);
    await_packed();
    fault_pread = dropping_pread;
    open_one(0);
    CHECK(!fault_pread && served == 1 && asked_in_vain == 0);
    CHECK(tally_now().origin_read_bytes == (uint64_t)(FILES + 1) * SIZE);
    CHECK(nothing_has_failed());
    end();
}

/* ---- room that a frame under way holds --------------------------------------------------- */

static atomic_bool release_read;

/* held_read - the first read of a File, by fill, lasts until it is let go. */
static ssize_t held_read(int fd, void *buffer, size_t n)
{
    static atomic_bool holds;
    if (n >= SIZE && !atomic_exchange(&holds, true))
        for (int i = 0; i < 5000 && !release_read; i++)
            poll(NULL, 0, 1);
    return __real_read(fd, buffer, n);
}

static void file_that_a_program_waited_for_gets_room_when_a_frame_takes_less(void)
{
    uint32_t one = 0;
    begin(140000);
    served = asked_in_vain = 0;
    monarch_table_pack(table, TIER, 512, 0); /* twice what it will take */
    fault_read = held_read;
    monarch_engine_fill(board->engine,
                        &(struct monarch_fill){.to_read = &one, .read_count = 1});
    for (int i = 0; i < 3000 && STATE_OF(board_state(board, 0)) != REPLICA_STAGING; i++)
        poll(NULL, 0, 1);
    open_one(1);
    CHECK(served == 1 && tally_now().packed_files == 0);
    poll(NULL, 0, 200); /* its packing is tried meanwhile */
    release_read = true;
    for (int i = 0; i < 3000 && tally_now().packed_files < 2; i++)
        poll(NULL, 0, 1);
    CHECK(tally_now().packed_files == 2 && nothing_has_failed());
    fault_read = NULL;
    end();
}

int main(void)
{
    if (!monarch_codec_library(METHOD_LZ4)) {
        fputs("no liblz4\n", stderr);
        return SKIP;
    }
    readers_beside_fill_find_right_bytes();
    memory_may_be_taken_back_at_any_moment();
    frames_may_move_while_they_are_read();
    segments_may_go_while_frames_move();
    frame_that_moves_while_it_is_decoded_is_decoded_at_its_new_place();
    frame_whose_segment_goes_while_it_is_written_is_written_again();
    frame_that_goes_while_it_is_decoded_is_no_error();
    file_that_a_program_waited_for_gets_room_when_a_frame_takes_less();
    return PASS;
}
