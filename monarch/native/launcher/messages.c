/* messages.c - what the launcher says on stderr, one write per line. */
#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    WORDS_BYTES_MAX = 4096,
    LINE_S = 10, /* between two lines of progress where nobody watches */
};

static bool quiet; /* -q: only what has gone wrong */
static bool mute;  /* descriptor 2 was closed: what opens there is not a terminal */
static bool line_is_open; /* a progress line waits to be overwritten */

/* words_begin - looks whether there is a stderr at all, before anything is opened. */
void words_begin(void)
{
    mute = fcntl(STDERR_FILENO, F_GETFD) < 0;
}

/* words_quiet - silences all but errors and warnings. */
void words_quiet(void)
{
    quiet = true;
}

static void put(const char *head, const char *text, const char *tail)
{
    struct iovec parts[4] = {
        {.iov_base = (char *)"\r\033[K", .iov_len = line_is_open ? 4 : 0},
        {.iov_base = (char *)head, .iov_len = strlen(head)},
        {.iov_base = (char *)text, .iov_len = strlen(text)},
        {.iov_base = (char *)tail, .iov_len = strlen(tail)},
    };
    int saved = errno;

    line_is_open = false;
    if (!mute && writev(STDERR_FILENO, parts, 4) < 0)
        mute = errno == EPIPE || errno == EBADF;
    errno = saved;
}

static void put_format(const char *format, va_list args)
{
    char text[WORDS_BYTES_MAX];

    vsnprintf(text, sizeof(text), format, args);
    put("monarch: ", text, "\n");
}

/* words_error - says why the run stops; -q does not silence it. */
void words_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_format(format, args);
    va_end(args);
}

/* words_warn - says what went wrong although the program runs; -q does not silence it,
 * because a job that reads its origin all the time is not what was asked for. */
void words_warn(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_format(format, args);
    va_end(args);
}

/* words_note - says the line of a normal start. */
void words_note(const char *text)
{
    if (!quiet && *text)
        put("monarch: ", text, "\n");
}

/* columns - how much of a line fits on the terminal; 0 = this is no terminal. */
static int columns(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0)
        return 0;
    return size.ws_col > 20 ? size.ws_col : 80;
}

/* rarely - true for the first line of progress, and then for one in LINE_S seconds. */
static bool rarely(void)
{
    static time_t said;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (said && now.tv_sec - said < LINE_S)
        return false;
    said = now.tv_sec;
    return true;
}

/* words_progress - says how far the start is: one line that is rewritten on a terminal,
 * else a line now and then. */
void words_progress(const char *text)
{
    char line[WORDS_BYTES_MAX];
    int width;

    if (quiet || mute)
        return;
    width = columns();
    if (!width) {
        if (rarely())
            put("monarch: ", text, "\n");
        return;
    }
    /* A line that wraps could not be overwritten. */
    snprintf(line, sizeof(line), "monarch: %.*s", width - 10, text);
    put("", line, "");
    line_is_open = true;
}

/* words_waiting - says for what we wait, to somebody who watches. */
void words_waiting(const char *text)
{
    if (columns())
        words_progress(text);
}

/* words_raw - says a line of the summary as it is; NULL only ends a progress line. */
void words_raw(const char *text)
{
    if (text && !quiet)
        put("", text, "\n");
    else if (line_is_open)
        put("", "", "");
}
