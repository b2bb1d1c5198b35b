/* notices.c - the lines that an agent writes to the launcher that has started it. */
#include "launcher.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* notices_begin - reads from a pipe; takes ownership of the descriptor. */
void notices_begin(struct notices *notices, int fd)
{
    notices->fd = fd;
    notices->begin = notices->end = 0;
    notices->skipping = false;
}

/* notices_close - closes the pipe. */
void notices_close(struct notices *notices)
{
    if (notices->fd >= 0)
        close(notices->fd);
    notices->fd = -1;
}

/* notices_read - waits at most timeout_ms for bytes; true if any arrived. Closes the pipe
 * at its end. */
bool notices_read(struct notices *notices, int timeout_ms)
{
    struct pollfd pipe = {.fd = notices->fd, .events = POLLIN};
    ssize_t n;

    if (notices->begin) {
        notices->end -= notices->begin;
        memmove(notices->bytes, notices->bytes + notices->begin, notices->end);
        notices->begin = 0;
    }
    if (poll(&pipe, 1, timeout_ms) <= 0 || notices->fd < 0)
        return false;
    n = read(notices->fd, notices->bytes + notices->end,
             sizeof(notices->bytes) - 1 - notices->end);
    if (n < 0 && errno == EINTR)
        return false;
    if (n <= 0)
        notices_close(notices);
    else
        notices->end += (size_t)n;
    return n > 0;
}

/* parse_line - parses a line: a word, for NOTICE_FAIL an exit code, and a text. */
static struct notice parse_line(char *line)
{
    static const struct {
        const char *word;
        enum notice_kind kind;
    } words[] = {
        {"progress", NOTICE_PROGRESS}, {"warn", NOTICE_WARN},   {"ready", NOTICE_READY},
        {"fail", NOTICE_FAIL},         {"plain", NOTICE_PLAIN}, {"say", NOTICE_SAY},
        {"done", NOTICE_DONE},         {"late", NOTICE_LATE},
    };
    struct notice notice = {.kind = NOTICE_UNKNOWN, .text = strchrnul(line, ' ')};
    size_t length = (size_t)(notice.text - line);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i].word) == length && !memcmp(words[i].word, line, length))
            notice.kind = words[i].kind;
    notice.text += *notice.text == ' ';
    if (notice.kind == NOTICE_FAIL) {
        char *end;

        notice.code = (int)strtol(notice.text, &end, 10);
        notice.text = end + (*end == ' ');
    }
    return notice;
}

/* notices_next - takes the next whole line, or the start of a line that is too long. The
 * last line before the end of the pipe needs no newline. */
struct notice notices_next(struct notices *notices)
{
    while (notices->begin < notices->end) {
        char *line = notices->bytes + notices->begin;
        size_t length = notices->end - notices->begin;
        char *newline = memchr(line, '\n', length);
        bool full = notices->begin == 0 && notices->end == sizeof(notices->bytes) - 1;
        bool skipping = notices->skipping;

        if (!newline && !full && notices->fd >= 0)
            break;
        notices->skipping = !newline && notices->fd >= 0;
        notices->begin += newline ? (size_t)(newline - line) + 1 : length;
        if (skipping)
            continue;
        *(newline ? newline : line + length) = '\0';
        return parse_line(line);
    }
    return (struct notice){.kind = NOTICE_NONE};
}
