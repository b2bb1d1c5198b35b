/* mkboard.c - a pretended agent: builds a run directory, then obeys lines on stdin.
 *
 *   mkboard [options] RUN TIER ROOT
 *   -a PATH  another spelling of the root    -m MODE  cold mode (auto, wait, through)
 *   -w N     cold_wait_max_bytes             -t MS    cold timeout
 *   -W N     cold_wait_max_whole_bytes
 *   -f NAME  program filter                  -p N     invented Entries
 *   -d MS    answer requests after MS        -n       never answer them
 *   -s       never beat again                -r       Files come from a peer
 *   -e       begin with an outline           -i       attributes of an earlier job
 *   -l       directories may be listed       -x REL   but this one has unknown names
 *
 * Lines: publish-all, counters, processes, root, mounts, pending, rung, answer; scan,
 * settling and serve after an outline; and with a path below the root:
 * publish, confirm, staging, refuse, busy, lose, where, written, dirwritten, whole, moves, and
 * othermoves (a File that shares the word of its progress). It prints "ready",
 * answers each line with one line, and ends when stdin does.
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "board_build.h"
#include "shared/catalog.h"
#include "shared/progress.h"

static struct plan plan = {.wait_max_bytes = EXTENT_BYTES, .timeout_ns = 30000000000u};
static struct built board;
static long delay_ms;
static bool never, silent;

static const char *const counter_names[] = {
#define COUNTER(name, unit, text) #name,
#include "shared/counter_names.def"
#undef COUNTER
};

static uint32_t file_of(const char *rel)
{
    int64_t entry = index_find(board.index, rel, strlen(rel));
    if (entry < 0)
        errx(1, "no Entry %s", rel);
    return index_entry(board.index, (uint32_t)entry)->file;
}

static void answer_requests(void)
{
    for (int i = 0; i < REQUEST_SLOTS && !never; i++) {
        uint64_t file = __atomic_exchange_n(&board.requests->slots[i], 0,
                                            __ATOMIC_ACQUIRE);
        if (!file || STATE_OF(replica_load(board.catalog, file - 1)) == REPLICA_READY)
            continue;
        state_set(&board, (uint32_t)file - 1, REPLICA_STAGING);
        poll(NULL, 0, (int)delay_ms);
        board_publish(&plan, &board, (uint32_t)file - 1);
    }
}

static void print_counters(void)
{
    for (int c = 0; c < COUNTER_COUNT; c++) {
        uint64_t sum = 0;
        for (int i = 0; i < PROCESS_SLOTS; i++)
            sum += board.counters->process[i].counters[c];
        printf("%s=%llu ", counter_names[c], (unsigned long long)sum);
    }
    uint64_t waits = 0;
    for (int i = 0; i < WAIT_SOURCES * WAIT_BUCKETS; i++)
        waits += board.counters->wait_buckets[i];
    printf("waits=%llu\n", (unsigned long long)waits);
}

static void print_processes(void)
{
    for (int i = 1; i < PROCESS_SLOTS; i++) {
        const struct process *p = &board.counters->process[i];
        if (p->state)
            printf("%u:%u:%s\t", p->pid, p->state, p->name);
    }
    printf("\n");
}

static int pending(void)
{
    int used = 0;
    for (int i = 0; i < REQUEST_SLOTS; i++)
        used += board.requests->slots[i] != 0;
    return used;
}

/* move - the Transfer of a File has progressed. */
static void move(uint64_t file)
{
    static uint32_t come;
    progress_store(board.requests, file, ++come);
}

static void obey_file(const char *verb, const char *rel)
{
    char path[4096];
    uint32_t file = file_of(rel);
    if (strcmp(verb, "whole") == 0)
        ((uint8_t *)board.flags)[board.flags->whole + file] = WHOLE_NAMED;
    if (strcmp(verb, "moves") == 0 || strcmp(verb, "othermoves") == 0)
        move(verb[0] == 'o' ? file + WAITER_COUNTS : file);
    if (strcmp(verb, "publish") == 0)
        board_publish(&plan, &board, file);
    else if (strcmp(verb, "staging") == 0)
        state_set(&board, file, REPLICA_STAGING);
    else if (strcmp(verb, "refuse") == 0)
        state_set(&board, file, STATE_WORD(REPLICA_ABSENT, 0, REASON_NO_ROOM));
    else if (strcmp(verb, "busy") == 0)
        state_set(&board, file, STATE_WORD(REPLICA_ABSENT, 0, REASON_BUSY));
    else if (strcmp(verb, "deny") == 0)
        state_set(&board, file, STATE_WORD(REPLICA_ABSENT, 0, REASON_DENIED));
    else if (strcmp(verb, "fail") == 0)
        state_set(&board, file, STATE_WORD(REPLICA_ABSENT, 0, REASON_ERROR));
    else if (strcmp(verb, "confirm") == 0)
        state_set(&board, file, replica_load(board.catalog, file) | STATE_CONFIRMED);
    replica_of(&plan, &board, file, path);
    if (strcmp(verb, "lose") == 0)
        unlink(path);
    if (strcmp(verb, "written") == 0)
        printf("%d\n", board.flags->written[file] != 0);
    else if (strcmp(verb, "dirwritten") == 0)
        printf("%d\n",
               board.flags->written[board.catalog->roots[0].dir_base + file] != 0);
    else
        printf("%s\n", path);
}

static void publish_all(void)
{
    for (uint32_t f = 0; f < board.catalog->file_count; f++)
        board_publish(&plan, &board, f);
    printf("ok\n");
}

static void scan(void)
{
    plan.outline = false;
    board_scan(&plan, &board);
    printf("ok\n");
}

static void serve(void)
{
    board_serve(&board);
    printf("ok\n");
}

static void obey(char *line)
{
    char *rel = strchr(line, ' ');
    if (rel)
        *rel++ = 0;
    if (rel)
        obey_file(line, rel);
    else if (strcmp(line, "scan") == 0)
        scan();
    else if (strcmp(line, "settling") == 0)
        printf("%d\n", board.requests->catalog = CATALOG_SETTLING);
    else if (strcmp(line, "serve") == 0)
        serve();
    else if (strcmp(line, "publish-all") == 0)
        publish_all();
    else if (strcmp(line, "counters") == 0)
        print_counters();
    else if (strcmp(line, "processes") == 0)
        print_processes();
    else if (strcmp(line, "root") == 0)
        printf("%d\n", board.flags->roots[0] != 0);
    else if (strcmp(line, "mounts") == 0)
        printf("%u\n", board.flags->mounts);
    else if (strcmp(line, "pending") == 0)
        printf("%d\n", pending());
    else if (strcmp(line, "answer") == 0)
        printf("%d\n", board.requests->called = 0);
    else if (strcmp(line, "inside") == 0)
        printf("%d\n", board.catalog->roots[0].inside = 1);
    else if (strcmp(line, "rung") == 0)
        printf("%u %u\n", board.requests->called, board.requests->bell);
    else
        errx(1, "unknown line %s", line);
    fflush(stdout);
}

static bool read_options(int argc, char **argv)
{
    for (int c; (c = getopt(argc, argv, "a:m:w:W:t:f:p:d:x:nrsueil")) != -1;) {
        if (c == 'a' && plan.spelling_count < SPELLINGS_MAX - 1)
            plan.spellings[plan.spelling_count++] = optarg;
        else if (c == 'm')
            plan.cold_mode = optarg[0] == 'w'   ? COLD_WAIT
                             : optarg[0] == 't' ? COLD_THROUGH
                                                : COLD_AUTO;
        else if (c == 'w')
            plan.wait_max_bytes = strtoull(optarg, NULL, 10);
        else if (c == 'W')
            plan.wait_max_whole_bytes = strtoull(optarg, NULL, 10);
        else if (c == 't')
            plan.timeout_ns = strtoull(optarg, NULL, 10) * 1000000;
        else if (c == 'f')
            plan.filter = optarg;
        else if (c == 'p')
            plan.padding = (unsigned)atoi(optarg);
        else if (c == 'd')
            delay_ms = atol(optarg);
        else if (c == 'n')
            never = true;
        else if (c == 'r')
            plan.source = SOURCE_PEER;
        else if (c == 's')
            silent = true;
        else if (c == 'u')
            plan.unstable = true;
        else if (c == 'e')
            plan.outline = true;
        else if (c == 'i')
            plan.provisional = true;
        else if (c == 'l')
            plan.settled = true;
        else if (c == 'x')
            plan.partial = optarg;
        else
            return false;
    }
    return argc - optind == 3;
}

int main(int argc, char **argv)
{
    static char line[8192];
    size_t held = 0;
    if (!read_options(argc, argv))
        errx(2, "usage: mkboard [options] RUN TIER ROOT");
    plan.run = argv[optind];
    plan.tier = argv[optind + 1];
    plan.root = argv[optind + 2];
    board = board_build(&plan);
    if (silent)
        board.requests->heartbeat_ns = 0;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (!silent)
            beat(&board);
        answer_requests();
        if (poll(&in, 1, 2) == 0)
            continue;
        ssize_t n = read(0, line + held, sizeof(line) - 1 - held);
        if (n <= 0)
            return 0;
        line[held += (size_t)n] = 0;
        for (char *end; (end = strchr(line, '\n')); held = strlen(line)) {
            *end = 0;
            obey(line);
            memmove(line, end + 1, strlen(end + 1) + 1);
        }
    }
}
