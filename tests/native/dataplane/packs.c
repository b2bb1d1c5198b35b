/* packs.c - threads that fill, open, evict and spoil packed Files at the same time:
 * programs always find the right bytes in the Pool. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "dataplane/media/codec.h"
#include "dataplane/transfers/idle_packing.h"
#include "dataplane/transfers/transfer.h"
#include "fault.h"
#include "packed.h"

enum { READERS = 3, ROUNDS = 400, MOVES = 3, HURRIES = 50 };

static const uint64_t LONG_NS = UINT64_MAX / 4;

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

static atomic_bool stop_watching;

/* hurried_now - the number of Extents packed at full speed. */
static uint32_t hurried_now(void)
{
    struct transfers *ts = &board->engine->transfers;
    uint32_t found = 0;
    pthread_mutex_lock(&ts->lock);
    for (uint32_t i = 0; i < ts->transfer_count; i++)
        found += ts->transfers[i].turn.hurried;
    pthread_mutex_unlock(&ts->lock);
    return found;
}

/* watch_hurry - records the maximum of them. */
static void *watch_hurry(void *most)
{
    while (!atomic_load(&stop_watching)) {
        uint32_t now = hurried_now();
        if (now > *(uint32_t *)most)
            *(uint32_t *)most = now;
    }
    return NULL;
}

/* seem - sets the apparent time to pack a byte, and to read one from the origin. */
static void seem(uint64_t pack_ns, uint64_t origin_ns)
{
    struct table *t = table;
    pthread_mutex_lock(&t->lock);
    t->tally.packed_bytes = t->tally.origin_read_bytes = 1;
    t->tally.pack_ns = pack_ns;
    t->tally.origin_busy_ns = origin_ns;
    pthread_mutex_unlock(&t->lock);
}

static void readers_beside_fill_find_right_bytes(void)
{
    uint32_t files[FILES];
    begin_job(64 << 20);
    seem(1, LONG_NS); /* else a slow machine leaves Files to a later fill */
    served = asked_in_vain = 0;
    fill_all(files);
    read_all();
    await_packed();
    struct monarch_tally tally = tally_now();
    CHECK(served > READERS * ROUNDS / 2);
    CHECK(tally.packed_files == FILES && tally.frames_dropped == 0);
    CHECK(tally.origin_read_bytes == 1 + (uint64_t)FILES * SIZE);
    end_job();
}

/* most_in_a_hurry - returns that maximum for a job whose programs open more Files than
 * the Pool holds. */
static uint32_t most_in_a_hurry(uint64_t pack_ns, uint64_t origin_ns)
{
    uint32_t most = 0;
    pthread_t watch;
    begin_job(64 << 20);
    seem(pack_ns, origin_ns);
    atomic_store(&stop_watching, false);
    CHECK(pthread_create(&watch, NULL, watch_hurry, &most) == 0);
    read_all();
    await_packed();
    atomic_store(&stop_watching, true);
    pthread_join(watch, NULL);
    CHECK(most <= idle_packing_threads(board->engine->transfers.idle_packing));
    CHECK(tally_now().origin_read_bytes <= 1 + (uint64_t)FILES * SIZE);
    end_job();
    return most;
}

static void small_files_wait_for_idle_processors_if_packing_is_slow(void)
{
    CHECK(most_in_a_hurry(LONG_NS, 1) == 0);
}

static ssize_t slow_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    poll(NULL, 0, 1);
    return __real_pwrite(fd, bytes, n, at);
}

static void few_threads_pack_in_a_hurry_what_would_be_read_again(void)
{
    uint32_t most = 0;
    fault_pwrite = slow_pwrite; /* so that the watching thread sees it */
    for (int i = 0; i < HURRIES && !most; i++)
        most = most_in_a_hurry(1, LONG_NS);
    fault_pwrite = NULL;
    CHECK(most > 0);
}

/* Programs read the others from the origin, and fill tries them again. */
static void files_that_wait_to_be_packed_take_half_of_the_pool(void)
{
    const uint32_t kind = MONARCH_ASKED | MONARCH_AWAITED;
    struct monarch_order orders[POOL_FILES];
    uint32_t begun = 0;
    begin_job(64 << 20);
    CHECK(table_packing_pays(table)); /* as far as known */
    seem(LONG_NS, 1);
    while (begun < POOL_FILES &&
           monarch_table_begin(table, begun, kind, &orders[begun]) == VERDICT_BEGUN)
        begun++;
    CHECK(begun == POOL_FILES / 2 && orders[0].tier == POOL);
    CHECK(table_packing_is_behind(table, begun) && !tally_now().again);
    table_count_again(table, begun);
    CHECK(tally_now().again == 1);
    while (begun)
        CHECK(monarch_table_fail(table, &orders[--begun], REASON_NONE, 1) == 1);
    CHECK(!table_packing_is_behind(table, 0));
    end_job();
}

static void memory_may_be_taken_back_at_any_moment(void)
{
    uint32_t files[FILES];
    begin_job(64 << 20);
    served = 0;
    fill_all(files);
    for (int i = 0; i < 5; i++) {
        read_all();
        monarch_engine_drop_packed(board->engine, TIER, 1, REASON_NONE);
    }
    CHECK(served > 0);
    end_job();
}

/* ---- frames that move ------------------------------------------------------------------ */

static atomic_bool stopping;
static atomic_uint gone; /* Files below this number are written */

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

/* write_third - marks a third of the rest written: so much of a segment is then dead
 * that the remaining frames move into another one. */
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

/* move_frames - rounds of compaction beside readers; with `drops` segments are dropped
 * at the same time. */
static void move_frames(bool drops)
{
    uint32_t files[FILES];
    pthread_t threads[READERS];
    begin_job(64 << 20);
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
    end_job();
}

static void segments_may_go_while_frames_move(void)
{
    move_frames(true);
    CHECK(tally_now().frames_dropped == 0 && served > 0);
    end_job();
}

/* ---- a frame that moves between the reads of its head and of its bytes ------------------- */

static struct { /* the frame that is being moved */
    int fd;
    off_t at;
    size_t n, least; /* its bytes; its minimum size */
    off_t behind;    /* its offset moves when so many bytes have been read */
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

/* is_hole - the middle of a frame contains zeros. */
static bool is_hole(const uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[1024];
    CHECK(n > 2 * sizeof(zeros));
    return memcmp(bytes + n / 2, zeros, sizeof(zeros)) == 0;
}

/* decode_while_it_moves - the head of the frame was read; now its space is freed. */
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
    if (phase == MOVES_NOTHING && n > held.least && is_compaction()) {
        held.fd = fd;
        held.at = at;
        held.n = n;
        phase = READ_TO_MOVE;
        await_phase(READ_TO_DECODE);
    } else if (phase == READ_TO_MOVE && fd == held.fd && at > held.at + held.behind &&
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

/* open_while_it_moves - a frame of at least so many bytes, of which `behind` are
 * decoded when it moves. */
static void open_while_it_moves(const uint64_t *sizes, size_t least, off_t behind)
{
    uint32_t files[FILES];
    packing.method = METHOD_NONE; /* frames of several pages */
    begin_job_with(sizes, 64 << 20);
    monarch_table_set_capacity(table, POOL, 16 * LARGE);
    held.least = least;
    held.behind = behind;
    phase = MOVES_NOTHING;
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
    CHECK(tally_now().origin_read_bytes == tally_now().packed_bytes);
    end_job();
}

static void frame_that_moves_while_it_is_decoded_is_decoded_at_its_new_place(void)
{
    uint64_t sizes[FILES];
    for (uint32_t i = 0; i < FILES; i++)
        sizes[i] = i < 2 || i == FILES - 1 ? LARGE : SIZE; /* in one segment */
    open_while_it_moves(NULL, 0, 0);
    open_while_it_moves(sizes, PIECE_BYTES, PIECE_BYTES);
}

/* ---- content that must not become a frame ---------------------------------------- */

/* read_spoiled - as pread(), but a File in the Pool has other bytes. */
static ssize_t read_spoiled(int fd, void *buffer, size_t n, off_t at)
{
    ssize_t got = __real_pread(fd, buffer, n, at);
    if (n == SIZE)
        *(uint8_t *)buffer ^= 1;
    return got;
}

static void a_file_that_is_damaged_in_the_pool_is_not_packed(void)
{
    const uint32_t file = 5;
    begin_job(64 << 20);
    fault_pread = read_spoiled;
    open_one(file);
    for (int i = 0; i < 3000 && table_is_due(table, file); i++)
        poll(NULL, 0, 10);
    fault_pread = NULL;
    CHECK(!table_is_due(table, file) && tally_now().packed_files == 0);
    struct monarch_account tier;
    monarch_table_account(table, TIER, &tier);
    CHECK(tier.used == 0 && tier.reserved == 0);
    end_job();
}

static void a_frame_is_not_set_in_a_tier_that_is_out_of_service(void)
{
    const struct packed_frame frame = {.bytes = 1000};
    const uint32_t file = 3;
    struct monarch_order order;
    struct monarch_account tier;
    begin_job(64 << 20);
    CHECK(monarch_table_begin(table, file, MONARCH_BACKGROUND, &order) ==
          VERDICT_BEGUN);
    CHECK(table_take_packed(table, &order, &frame) == 0);
    CHECK(monarch_table_retire(table, TIER) == 1);
    CHECK(table_set_packed(table, &order, &frame) == -ENXIO);
    CHECK(monarch_table_fail(table, &order, REASON_NONE, 0) == 1);
    monarch_table_account(table, TIER, &tier);
    CHECK(tier.used == 0 && tier.reserved == 0 && !table_is_packed(table, file));
    end_job();
}

int main(void)
{
    if (!monarch_codec_library(METHOD_LZ4)) {
        fputs("no liblz4\n", stderr);
        return SKIP;
    }
    readers_beside_fill_find_right_bytes();
    small_files_wait_for_idle_processors_if_packing_is_slow();
    few_threads_pack_in_a_hurry_what_would_be_read_again();
    files_that_wait_to_be_packed_take_half_of_the_pool();
    memory_may_be_taken_back_at_any_moment();
    frames_may_move_while_they_are_read();
    segments_may_go_while_frames_move();
    frame_that_moves_while_it_is_decoded_is_decoded_at_its_new_place();
    a_file_that_is_damaged_in_the_pool_is_not_packed();
    a_frame_is_not_set_in_a_tier_that_is_out_of_service();
    return PASS;
}
