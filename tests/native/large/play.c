/* play.c - plays random sequences of operations on large files, and prints each result.
 *
 *     play make FOLDER [SIZE ...]      writes the files, again if their bytes differ
 *     play memory|disk FOLDER FIRST LAST [SIZE ...]
 *
 * prints a line for each operation of the sequences: its random choices, the result,
 * errno, a digest of the bytes, the offset after it. The lines must be equal on every
 * file system. Results that may differ are compared with the model of words.h and
 * printed as "right" or "WRONG". `disk` leaves out operations that depend on the file
 * system of a Tier: unaligned reads by O_DIRECT, offsets of 16 TiB and more. Files are
 * numbered from 0; one in five is changed meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

enum { STEPS_MIN = 12, STEPS_MORE = 24, MUTABLE_EACH = 5, SIGNALS_EACH = 4 };

struct file *files;
int file_count, folder_fd, is_memory;
struct slot slots[SLOTS];
char room[ROOM];

static uint64_t state;
static char line[LINE_BYTES];
static size_t line_length;

static const struct operation {
    const char *name;
    void (*run)(void);
    unsigned weight;
} operations[] = {
    {"open", op_open, 10},
    {"odd-open", op_odd_open, 4},
    {"dup", op_dup, 5},
    {"reopen", op_reopen, 2},
    {"close", op_close, 4},
    {"reuse", op_reuse, 5},
    {"read", op_read, 40},
    {"seek", op_seek, 14},
    {"move", op_move, 4},
    {"exec", op_exec, 1},
    {"map", op_map, 3},
    {"ask", op_ask, 3},
    {"may-differ", op_free_to_differ, 3},
    {"bad-buffer", op_bad_buffer, 3},
    {"bad-call", op_bad_call, 4},
    {"torn-buffer", op_torn_buffer, 3},
    {"change", op_change, 3},
    {"change-during", op_change_during, 1},
    {"fork", op_fork, 4},
    {"join", op_join, 2},
};

/* draw - a number below another one, from the sequence's seed. */
uint64_t draw(uint64_t below)
{
    state += 0x9e3779b97f4a7c15u;
    return mix(state) % below;
}

/* say - appends to the line of this operation. */
void say(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    size_t left = LINE_BYTES - line_length;
    int n = vsnprintf(line + line_length, left, format, words);
    va_end(words);
    line_length += (size_t)n < left ? (size_t)n : left - 1;
}

/* say_nothing - drops the line, which another process prints. */
void say_nothing(void)
{
    line_length = 0;
}

/* say_result - the result of a call, and errno: a success does not change it. */
void say_result(long result)
{
    say(" -> %ld %d", result, errno);
}

/* say_bytes - the bytes read into the room; whether those behind it are unchanged. */
void say_bytes(const char *bytes, ssize_t count)
{
    size_t n = count > 0 ? (size_t)count : 0;
    say(" %016llx", (unsigned long long)digest(bytes, n));
}

static void end_line(void)
{
    line[line_length++] = '\n';
    size_t done = 0;
    while (done < line_length) {
        ssize_t n = write(KEPT_FROM, line + done, line_length - done);
        if (n < 0 && errno != EINTR)
            exit(3);
        done += n < 0 ? 0 : (size_t)n;
    }
    line_length = 0;
}

static const struct operation *some_operation(void)
{
    const size_t count = sizeof(operations) / sizeof(*operations);
    unsigned total = 0;
    for (size_t i = 0; i < count; i++)
        total += operations[i].weight;
    uint64_t left = draw(total);
    const struct operation *one = operations;
    for (; left >= one->weight; one++)
        left -= one->weight;
    return one;
}

/* step_as - one operation, whose choices all depend on the state. */
static void step_as(const struct operation *one)
{
    say("  %s%s", is_child() ? "child " : "", one->name);
    errno = UNTOUCHED;
    one->run();
    if (draw(6) == 0) {
        int fd = some_slot(FILE_READ);
        if (fd >= 0 && !is_stale(fd))
            say(" [%d at %lld]", fd, (long long)lseek(fd, 0, SEEK_CUR));
    }
    end_line();
}

static void step(uint64_t seed)
{
    state = seed;
    step_as(some_operation());
}

static void end_sequence(void)
{
    int open_now = 0;
    say("  end");
    op_join();
    end_signals();
    for (int fd = 3; fd < SLOTS; fd++) {
        if (slots[fd].kind != NOTHING)
            close(fd);
        slots[fd].kind = NOTHING;
        open_now += fcntl(fd, F_GETFD) >= 0;
    }
    say(" %d left open", open_now);
    end_line();
}

static void play_sequence(uint64_t number)
{
    state = mix(number + 1);
    uint64_t steps = STEPS_MIN + draw(STEPS_MORE);
    say("sequence %llu", (unsigned long long)number);
    end_line();
    if (number % SIGNALS_EACH == 0)
        begin_signals();
    step_as(operations);
    step_as(operations);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t seed = mix(mix(number + 1) + i);
        state = ~seed;
        if (!pass_on(step, seed))
            step(seed);
    }
    end_sequence();
}

static void take_in(const char *folder, char **sizes, int count)
{
    file_count = count;
    files = mmap(NULL, sizeof(*files) * FILES_MAX, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < count; i++) {
        struct file *file = &files[i];
        file->number = (unsigned)i + 1;
        file->is_mutable = i % MUTABLE_EACH == MUTABLE_EACH - 2;
        file->sizes[0] = strtoll(sizes[i], NULL, 10);
        file->sizes_count = 1;
        snprintf(file->path, PATH_BYTES, "%s/f%02d", folder, i);
    }
}

/* make - writes each file that another run has changed, or that is missing. */
static int make(void)
{
    for (int i = 0; i < file_count; i++) {
        struct stat st;
        off_t size = size_of(&files[i]);
        if (!files[i].is_mutable && !stat(files[i].path, &st) && st.st_size == size)
            continue;
        int fd = open(files[i].path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        for (off_t at = 0; at < size; at += ROOM / 2) {
            size_t n = (size_t)(size - at < ROOM / 2 ? size - at : ROOM / 2);
            fill_words(room, (n + WORD - 1) / WORD * WORD, at,
                       (struct word){files[i].number, 0, 0});
            if (pwrite(fd, room, n, at) != (ssize_t)n)
                return 1;
        }
        close(fd);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int making = argc > 3 && strcmp(argv[1], "make") == 0;
    int first_size = making ? 3 : 5;
    if (argc <= first_size || argc - first_size > FILES_MAX)
        return 2;
    const char *folder = argv[2];
    is_memory = strcmp(argv[1], "memory") == 0;
    take_in(folder, argv + first_size, argc - first_size);
    if (making)
        return make();
    int plain_fd = open(folder, O_RDONLY | O_DIRECTORY);
    folder_fd = fcntl(plain_fd, F_DUPFD, KEPT_FROM + 1);
    if (dup2(1, KEPT_FROM) < 0 || folder_fd < 0)
        return 3;
    close(plain_fd);
    for (uint64_t i = strtoull(argv[3], NULL, 10); i <= strtoull(argv[4], NULL, 10);
         i++)
        play_sequence(i);
    return 0;
}
