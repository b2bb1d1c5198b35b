/* messages.c - lines on stderr, one write per line. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    MESSAGE_BYTES_MAX = 4096,
    PROGRESS_LOG_S = 10, /* between two lines of progress without a terminal */
};

static const char HEAD[] = "monarch: ";

static bool quiet; /* -q: errors and warnings only */
static bool mute;  /* descriptor 2 was closed: a file that opens there is not stderr */
static bool
    progress_open; /* a line of progress is on the terminal, to be overwritten */

/* message_init - checks that stderr is open, before the launcher opens any file. */
void message_init(void)
{
    mute = fcntl(STDERR_FILENO, F_GETFD) < 0;
}

/* message_set_quiet - suppresses all but errors and warnings. */
void message_set_quiet(void)
{
    quiet = true;
}

static void put(const char *head, const char *text, const char *tail)
{
    struct iovec parts[4] = {
        {.iov_base = (char *)"\r\033[K", .iov_len = progress_open ? 4 : 0},
        {.iov_base = (char *)head, .iov_len = strlen(head)},
        {.iov_base = (char *)text, .iov_len = strlen(text)},
        {.iov_base = (char *)tail, .iov_len = strlen(tail)},
    };
    int saved = errno;

    progress_open = false;
    if (!mute && writev(STDERR_FILENO, parts, 4) < 0)
        mute = errno == EPIPE || errno == EBADF;
    errno = saved;
}

/* terminal_columns - returns the width of the terminal; 0 = stderr is not a terminal. */
static int terminal_columns(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0)
        return 0;
    return size.ws_col > 20 ? size.ws_col : 80;
}

/* word_columns - returns the columns of the next word, whose UTF-8 may have more bytes. */
static int word_columns(const char *word)
{
    int columns = 0;

    for (; *word && *word != ' '; word++)
        columns += ((unsigned char)*word & 0xc0) != 0x80;
    return columns;
}

/* put_words - prints a message; on a terminal its lines end between words. A word that is
 * longer than a line, such as a path, is left to the terminal, which can copy it whole. */
static void put_words(const char *text)
{
    char line[2 * MESSAGE_BYTES_MAX];
    int saved = errno, columns = terminal_columns(), at = (int)strlen(HEAD);
    size_t n = 0;

    errno = saved; /* a caller may still need it */
    if (!columns) {
        put(HEAD, text, "\n");
        return;
    }
    for (const char *word = text; *word && n + 3 < sizeof(line);) {
        if (*word == ' ' && at + 1 + word_columns(word + 1) > columns) {
            line[n++] = '\n';
            line[n++] = ' ';
            at = 1;
        }
        at += ((unsigned char)*word & 0xc0) != 0x80;
        line[n++] = *word++;
    }
    line[n] = '\0';
    put(HEAD, line, "\n");
}

static void put_format(const char *format, va_list args)
{
    char text[MESSAGE_BYTES_MAX];

    vsnprintf(text, sizeof(text), format, args);
    put_words(text);
}

/* message_error - prints why the run stops; -q does not suppress it. */
void message_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_format(format, args);
    va_end(args);
}

/* message_warn - prints a failure after which the program runs all the same. -q does not suppress
 * it, because the user did not ask for a job that reads its origin all the time. */
void message_warn(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_format(format, args);
    va_end(args);
}

/* message_note - prints the line of a normal start. */
void message_note(const char *text)
{
    if (!quiet && *text)
        put_words(text);
}

/* message_line - prints a line of the report unchanged. */
void message_line(const char *text)
{
    if (!quiet)
        put("", text, "\n");
    else
        message_progress_end();
}

/* progress_due - true for the first line of progress, then once in PROGRESS_LOG_S. */
static bool progress_due(void)
{
    static time_t last_s;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (last_s && now.tv_sec - last_s < PROGRESS_LOG_S)
        return false;
    last_s = now.tv_sec;
    return true;
}

/* message_progress - prints the progress of the start: one line that is rewritten on a terminal,
 * else one line in PROGRESS_LOG_S. */
void message_progress(const char *text)
{
    char line[MESSAGE_BYTES_MAX];
    int columns;

    if (quiet || mute)
        return;
    columns = terminal_columns();
    if (!columns) {
        if (progress_due())
            put("monarch: ", text, "\n");
        return;
    }
    /* A line that wraps could not be overwritten. */
    snprintf(line, sizeof(line), "monarch: %.*s", columns - 10, text);
    put("", line, "");
    progress_open = true;
}

/* message_progress_terminal - prints progress on a terminal only. */
void message_progress_terminal(const char *text)
{
    if (terminal_columns())
        message_progress(text);
}

/* message_progress_end - removes a line of progress from the terminal. */
void message_progress_end(void)
{
    if (progress_open)
        put("", "", "");
}
