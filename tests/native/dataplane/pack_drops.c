/* pack_drops.c - dropped segments, and space reserved by others, while a frame is
 * written or decoded: no Transfer fails by this, and no File is refused for ever. */
#include <poll.h>

#include "dataplane/media/codec.h"
#include "fault.h"
#include "packed.h"

static void fill_one(uint32_t file)
{
    static uint32_t listed[FILES]; /* must live while fill reads it */
    listed[file] = file;
    monarch_engine_fill(board->engine, &(struct monarch_fill){.to_read = &listed[file],
                                                              .read_count = 1});
}

/* ---- dropped segments ------------------------------------------------------------ */

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
    uint32_t files[FILES];
    begin_job(64 << 20);
    served = asked_in_vain = 0;
    fill_all(files);
    await_packed();
    drop_all();
    fill_one(0);
    for (int i = 0; i < 3000 && tally_now().packed_files == FILES; i++)
        poll(NULL, 0, 1);
    fault_pwrite = dropping_pwrite;
    fill_one(FILES - 1);
    for (int i = 0; i < 3000 && tally_now().packed_files == FILES + 1; i++)
        poll(NULL, 0, 1);
    CHECK(!fault_pwrite && tally_now().packed_files == FILES + 2);
    open_one(FILES - 1);
    CHECK(served == 1 && tally_now().unpacked_files == 1 && nothing_has_failed());
    end_job();
}

static void frame_that_goes_while_it_is_decoded_is_no_error(void)
{
    uint32_t files[FILES];
    begin_job(64 << 20);
    served = asked_in_vain = 0;
    fill_all(files);
    await_packed();
    fault_pread = dropping_pread;
    open_one(0);
    CHECK(!fault_pread && served == 1 && asked_in_vain == 0);
    CHECK(tally_now().origin_read_bytes == (uint64_t)(FILES + 1) * SIZE);
    CHECK(nothing_has_failed());
    end_job();
}

/* ---- space of a frame in flight -------------------------------------------------- */

static atomic_bool holds, release_read;

/* held_read - the first read of a File, by fill, blocks until it is released. */
static ssize_t held_read(int fd, void *buffer, size_t n)
{
    if (n >= SIZE && !atomic_exchange(&holds, true))
        for (int i = 0; i < 5000 && !release_read; i++)
            poll(NULL, 0, 1);
    return __real_read(fd, buffer, n);
}

/* begin_crowded - the frame of a File is in flight, and reserves twice its final size:
 * no other one fits meanwhile. */
static void begin_crowded(void)
{
    begin_job(140000);
    served = asked_in_vain = 0;
    holds = release_read = false;
    monarch_table_pack(table, TIER, 512, 0);
    fault_read = held_read;
    fill_one(0);
    for (int i = 0; i < 3000 && STATE_OF(board_state(board, 0)) != REPLICA_STAGING; i++)
        poll(NULL, 0, 1);
}

static void end_crowded(uint64_t packed)
{
    release_read = true;
    for (int i = 0; i < 3000 && tally_now().packed_files < packed; i++)
        poll(NULL, 0, 1);
    CHECK(tally_now().packed_files == packed && nothing_has_failed());
    fault_read = NULL;
    end_job();
}

static void file_that_a_program_waited_for_gets_room_when_a_frame_takes_less(void)
{
    begin_crowded();
    open_one(1);
    CHECK(served == 1 && tally_now().packed_files == 0);
    poll(NULL, 0, 200); /* its packing is attempted meanwhile */
    end_crowded(2);
}

/* pass_over - fill reaches a File that does not fit. */
static void pass_over(uint32_t file)
{
    uint64_t left[2] = {1};
    fill_one(file);
    for (int i = 0; i < 3000 && left[0]; i++) {
        monarch_engine_fill_left(board->engine, left);
        poll(NULL, 0, 1);
    }
    CHECK(STATE_OF(board_state(board, file)) == REPLICA_ABSENT);
    CHECK(STATE_REASON(board_state(board, file)) == REASON_NONE);
}

static void file_that_is_passed_over_keeps_its_promise(void)
{
    begin_crowded();
    uint64_t promised = table->promised_bytes;
    pass_over(1);
    CHECK(tally_now().crowded == 1 && table->promised_bytes == promised);
    end_crowded(1);
}

static void fill_is_not_to_look_again_where_others_leave(void)
{
    begin_crowded();
    monarch_table_evict(table, TIER);
    pass_over(1);
    CHECK(tally_now().crowded == 0);
    end_crowded(1);
}

static void room_that_is_reserved_for_long_is_not_waited_for(void)
{
    begin_job(140000);
    monarch_table_pack(table, TIER, 512, 0);
    table->accounts[TIER].reserved += 80000; /* not by a frame */
    monarch_engine_demand(board->engine, 1, MONARCH_ASKED);
    for (int i = 0; i < 3000 && !STATE_REASON(board_state(board, 1)); i++)
        poll(NULL, 0, 1);
    CHECK(STATE_REASON(board_state(board, 1)) == REASON_NO_ROOM && !table->due_bytes);
    table->accounts[TIER].reserved -= 80000;
    end_job();
}

int main(void)
{
    if (!monarch_codec_library(METHOD_LZ4)) {
        fputs("no liblz4\n", stderr);
        return SKIP;
    }
    frame_whose_segment_goes_while_it_is_written_is_written_again();
    frame_that_goes_while_it_is_decoded_is_no_error();
    file_that_a_program_waited_for_gets_room_when_a_frame_takes_less();
    file_that_is_passed_over_keeps_its_promise();
    fill_is_not_to_look_again_where_others_leave();
    room_that_is_reserved_for_long_is_not_waited_for();
    return PASS;
}
