/* engine.c - the copy engine beside a plain loop of copies, in turn, in one run.
 *
 *   engine FILES BYTES ROUNDS
 *
 * The origin lies below $TEST_ORIGIN, the Tier below $TEST_BASE. Prints one line each:
 *
 *   loop RATE CPU      files per second of a plain loop, THREADS threads, median, and
 *                      microseconds of processor time per file
 *   engine RATE CPU    of the engine with as many threads
 *   sealed RATE CPU    of the engine that makes seals; left out where no libcrypto is
 *   seal MB_S CPU      the bytes of all files through the MAC alone, one thread, and
 *                      microseconds per file
 *   copy P50 P99       one plain copy, microseconds
 *   cold P50 P99       one cold open, from filling a request slot to waking up with READY;
 *                      a stand-in for the agent submits each request at once
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "board.h"
#include "dataplane/base/clock.h"
#include "dataplane/media/seal.h"

enum { THREADS = 2, BATCH = 256, ROUNDS_MAX = 64 };

static const uint8_t key[SEAL_KEY_BYTES] = {1};
static struct board *board;
static atomic_uint next_file;
static atomic_bool ended;

static void copy_plainly(uint32_t file, char *buffer)
{
    char from[512], to[512];
    board_origin_path(board, file, from);
    snprintf(to, sizeof(to), "%s/plain%u", board->tier, file);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, buffer, CHUNK_BYTES)) > 0;)
        CHECK(write(out, buffer, (size_t)n) == n);
    close(in);
    close(out);
}

static void *loop(void *unused)
{
    char *buffer = aligned_alloc(4096, CHUNK_BYTES);
    CHECK(buffer);
    for (uint32_t i; (i = atomic_fetch_add(&next_file, 1)) < board->files;)
        copy_plainly(i, buffer);
    free(buffer);
    return unused;
}

/* empty_tier - as before the first copy; the inode table never forgets by itself. */
static void empty_tier(void)
{
    char path[512];
    memset(board->inodes->slots, 0, board->inodes->slot_count * sizeof(struct inode));
    for (uint32_t i = 0; i < board->files; i++) {
        snprintf(path, sizeof(path), "%s/plain%u", board->tier, i);
        unlink(path);
        board_replica_path(board, i, path);
        unlink(path);
    }
}

struct pace {
    double files_per_s, cpu_us;
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static struct pace pace_since(uint64_t began, uint64_t cpu_began)
{
    double files = board->files;
    return (struct pace){.files_per_s = files / ((double)(clock_ns() - began) / 1e9),
                         .cpu_us = (double)(cpu_ns() - cpu_began) / 1e3 / files};
}

static struct pace time_loop(void)
{
    pthread_t threads[THREADS];
    empty_tier();
    next_file = 0;
    uint64_t began = clock_ns(), cpu = cpu_ns();
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, loop, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return pace_since(began, cpu);
}

static uint32_t collect(int patience_ms)
{
    static struct monarch_completion done[BATCH];
    struct pollfd fd = {.fd = monarch_engine_event_fd(board->engine), .events = POLLIN};
    poll(&fd, 1, patience_ms);
    uint32_t n = monarch_engine_completions(board->engine, done, BATCH);
    for (uint32_t i = 0; i < n; i++)
        CHECK(done[i].status == 0);
    return n;
}

static struct pace time_engine(void)
{
    static struct monarch_order orders[FILES_MAX];
    empty_tier();
    for (uint32_t i = 0; i < board->files; i++)
        orders[i] = (struct monarch_order){.file = i};
    for (uint32_t i = 0; i < board->files; i++)
        board_set_state(board, i, STATE_WORD(REPLICA_STAGING, 0, 0));
    board_start(board, THREADS, 1);
    uint64_t began = clock_ns(), cpu = cpu_ns();
    uint32_t sent = 0, got = 0;
    while (got < board->files) {
        sent += monarch_engine_submit(board->engine, orders + sent,
                                      board->files - sent);
        got += collect(1000);
    }
    struct pace result = pace_since(began, cpu);
    board_stop(board);
    return result;
}

static struct pace time_sealed(void)
{
    board_set_key(board, key);
    board->options.seals_only = 1; /* as in a job that retains nothing */
    struct pace result = time_engine();
    board_set_key(board, NULL);
    return result;
}

/* print_seals - what the MAC takes by itself, of bytes that are in the CPU's cache. */
static void print_seals(void)
{
    const struct range_name name = {.bytes = board->sizes[0]};
    uint8_t *bytes = calloc(1, name.bytes + 1);
    struct monarch_seal seal = {0};
    struct sealing *sealing;
    struct sealer *sealer;
    CHECK(bytes && sealer_new(key, 1, &sealer) == 0);
    uint64_t began = cpu_ns();
    for (uint32_t i = 0; i < board->files; i++) {
        CHECK(seal_nonce(&seal) == 0);
        CHECK(seal_begin(sealer, &name, &seal, &sealing) == 0);
        CHECK(seal_add(sealing, bytes, name.bytes) == 0);
        CHECK(seal_end(&sealing, seal.tag) == 0);
    }
    double us = (double)(cpu_ns() - began) / 1e3 / board->files;
    printf("seal %.0f %.2f\n", (double)name.bytes / us, us);
    sealer_free(sealer);
    free(bytes);
}

/* answer - the agent: stages what is asked for, at once. */
static void *answer(void *unused)
{
    uint32_t files[BATCH];
    while (!atomic_load(&ended)) {
        collect(100);
        uint32_t n = monarch_engine_requests(board->engine, files, BATCH);
        for (uint32_t i = 0; i < n; i++)
            board_submit(board, files[i], MONARCH_DEMAND);
    }
    return unused;
}

static double open_cold(uint32_t file)
{
    uint32_t *word = (uint32_t *)((char *)board->catalog + board->catalog->states) +
                     file;
    uint64_t began = clock_ns();
    board_ask(board, file % REQUEST_SLOTS, file + 1ull);
    for (uint32_t seen; STATE_OF(seen = board_state(board, file)) != REPLICA_READY;)
        syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
    return (double)(clock_ns() - began) / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, double *us)
{
    uint32_t n = board->files;
    qsort(us, n, sizeof(*us), ascending);
    printf("%s %.1f %.1f\n", name, us[n / 2], us[n - 1 - n / 100]);
}

static void time_opens(void)
{
    static double cold[FILES_MAX], plain[FILES_MAX];
    pthread_t agent;
    char *buffer = aligned_alloc(4096, CHUNK_BYTES);
    empty_tier();
    for (uint32_t i = 0; i < board->files; i++)
        board_set_state(board, i, 0);
    board_start(board, THREADS, 1);
    pthread_create(&agent, NULL, answer, NULL);
    for (uint32_t i = 0; i < board->files; i++) {
        uint64_t began = clock_ns();
        copy_plainly(i, buffer);
        plain[i] = (double)(clock_ns() - began) / 1e3;
        cold[i] = open_cold(i);
    }
    atomic_store(&ended, true);
    pthread_join(agent, NULL);
    board_stop(board);
    free(buffer);
    print_times("copy", plain);
    print_times("cold", cold);
}

static void print_pace(const char *name, struct pace *paces, int rounds)
{
    qsort(paces, (size_t)rounds, sizeof(*paces), ascending);
    printf("%s %.0f %.1f\n", name, paces[rounds / 2].files_per_s,
           paces[rounds / 2].cpu_us);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    int rounds = atoi(argv[3]);
    struct pace plain[ROUNDS_MAX], engine[ROUNDS_MAX], sealed[ROUNDS_MAX];
    bool seals = monarch_seal_library();
    CHECK(rounds > 0 && rounds <= ROUNDS_MAX);
    board = board_new_equal((uint32_t)atoi(argv[1]), strtoull(argv[2], NULL, 10));
    for (int i = 0; i < rounds; i++) {
        plain[i] = time_loop();
        engine[i] = time_engine();
        sealed[i] = seals ? time_sealed() : engine[i];
    }
    print_pace("loop", plain, rounds);
    print_pace("engine", engine, rounds);
    if (seals) {
        print_pace("sealed", sealed, rounds);
        print_seals();
    }
    time_opens();
    board_free(board);
    return PASS;
}
