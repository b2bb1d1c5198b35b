/* idle.c - pieces that idle processors compress equal the output of a coder, and a
 * caller in a hurry never waits for them. */
#include "board.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "dataplane/base/clock.h"
#include "dataplane/media/codec.h"
#include "dataplane/media/frame.h"
#include "dataplane/transfers/idle_packing.h"

enum { WAITERS = 4, ROUNDS = 50, LOWEST_NICE = 19, SLOW_LEVEL = 19 };

static struct idle_packing *packing;
static uint8_t plain[PIECE_BYTES], expected[PIECE_BYTES];
static int64_t expected_bytes;

static struct coder *coder_of(int32_t level)
{
    struct coder *coder = NULL;
    CHECK(monarch_coder_new(METHOD_ZSTD, level, 1, &coder) == 0);
    return coder;
}

static void make_piece(int32_t level)
{
    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (uint8_t)(i * 2654435761u >> 27);
    struct coder *coder = coder_of(level);
    expected_bytes = monarch_coder_pack(coder, plain, sizeof(plain), expected,
                                        frame_piece_room(sizeof(plain)));
    CHECK(expected_bytes > 0);
    monarch_coder_free(coder);
}

static bool never(void *of)
{
    (void)of;
    return false;
}

static bool always(void *of)
{
    (void)of;
    return true;
}

/* now_and_then - true for every third call. */
static bool now_and_then(void *of)
{
    return atomic_fetch_add((atomic_int *)of, 1) % 3 == 2;
}

/* pack - true: the piece was compressed elsewhere, and is right. */
static bool pack(struct coder **coder, bool (*hurries)(void *), void *of)
{
    const struct idle_piece piece = {plain, sizeof(plain),
                                     frame_piece_room(sizeof(plain)), hurries, of};
    static _Thread_local uint8_t out[PIECE_BYTES];
    struct idle_result result = {0};
    if (!idle_packing_run(packing, coder, &piece, out, &result))
        return false;
    CHECK(*coder);
    CHECK(result.packed == expected_bytes && result.cpu_ns > 0);
    CHECK(memcmp(out, expected, (size_t)expected_bytes) == 0);
    return true;
}

static void a_piece_is_what_the_coder_makes_of_it(void)
{
    struct coder *coder = coder_of(1);
    make_piece(1);
    for (int i = 0; i < 3; i++)
        CHECK(pack(&coder, never, NULL));
    monarch_coder_free(coder);
}

static void its_threads_have_the_lowest_priority(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;
    CHECK(tasks);
    for (struct dirent *d; (d = readdir(tasks));) {
        char path[64], name[32] = "";
        pid_t tid = (pid_t)atoi(d->d_name);
        snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", d->d_name);
        FILE *comm = tid ? fopen(path, "r") : NULL;
        if (!comm || !fgets(name, sizeof(name), comm) || strcmp(name, "idle packing\n"))
            tid = 0;
        if (comm)
            fclose(comm);
        if (!tid)
            continue;
        found++;
        CHECK(sched_getscheduler(tid) == SCHED_IDLE ||
              getpriority(PRIO_PROCESS, (id_t)tid) == LOWEST_NICE);
    }
    closedir(tasks);
    CHECK(found > 0);
}

static void a_piece_that_is_needed_at_once_is_not_waited_for(void)
{
    make_piece(SLOW_LEVEL);
    struct coder *coder = coder_of(SLOW_LEVEL);
    int elsewhere = 0;
    for (int i = 0; i < 8; i++) {
        elsewhere += pack(&coder, always, NULL);
        if (!coder)
            coder = coder_of(SLOW_LEVEL);
    }
    CHECK(elsewhere < 8);
    CHECK(pack(&coder, never, NULL)); /* the abandoned pieces are done */
    monarch_coder_free(coder);
}

static void *pack_often(void *questions)
{
    struct coder *coder = coder_of(1);
    for (int i = 0; i < ROUNDS; i++) {
        pack(&coder, now_and_then, questions);
        if (!coder)
            coder = coder_of(1);
    }
    monarch_coder_free(coder);
    return NULL;
}

static void many_wait_and_hurry_at_once(void)
{
    pthread_t threads[WAITERS];
    atomic_int questions = 0;
    make_piece(1);
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, pack_often, &questions) == 0);
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    a_piece_is_what_the_coder_makes_of_it();
}

static void an_abandoned_piece_delays_no_end(void)
{
    struct coder *coder = coder_of(SLOW_LEVEL);
    make_piece(SLOW_LEVEL);
    while (coder && pack(&coder, always, NULL)) {
    }
    monarch_coder_free(coder);
    uint64_t began = clock_ns();
    idle_packing_free(packing);
    CHECK(clock_ns() - began < SECOND_NS);
}

int main(void)
{
    if (!monarch_codec_library(METHOD_ZSTD))
        return SKIP;
    CHECK(idle_packing_new(&packing) == 0);
    a_piece_is_what_the_coder_makes_of_it();
    its_threads_have_the_lowest_priority();
    a_piece_that_is_needed_at_once_is_not_waited_for();
    many_wait_and_hurry_at_once();
    an_abandoned_piece_delays_no_end();
    return PASS;
}
