/* difference.c - a running agent that was started with other options than ours: its own
 * hold, because a job has one configuration. */
#include "difference.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher.h"
#include "words.h"

enum { COMMAND_BYTES_MAX = 65536, WORDS_MAX = 1024 };

/* read_command - reads the agent's command line, words ended by NUL; 0 = unknown. */
static size_t read_command(const struct run *run, char *bytes, size_t max)
{
    char path[32];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%u/cmdline", run->board.requests->agent_pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, bytes, max - 1);
    close(fd);
    bytes[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* split - finds the words behind `--notify-fd 3 --`, which are those behind `run` of the
 * launcher that has started the agent. Returns their number. */
static size_t split(char *bytes, size_t length, char **words)
{
    size_t count = 0;
    char *end = bytes + length, *before = NULL;
    bool behind = false;

    for (char *word = bytes; word < end && count < WORDS_MAX;
         word += strlen(word) + 1) {
        if (behind)
            words[count++] = word;
        behind = behind || (before && !strcmp(before, "--notify-fd"));
        before = word;
    }
    words[count] = NULL;
    return count;
}

/* difference_warn - says so if our options would have configured the agent otherwise. */
void difference_warn(const struct run *run)
{
    static char bytes[COMMAND_BYTES_MAX];
    static char *words[WORDS_MAX + 1];
    struct arguments theirs;
    size_t length;

    if (!run->args.configuration)
        return;
    length = read_command(run, bytes, sizeof(bytes));
    if (split(bytes, length, words) < 2 || strcmp(words[0], "--") ||
        arguments_parse(&theirs, words + 1))
        return;
    if (theirs.configuration != run->args.configuration)
        words_warn("the agent of this job was started with other options; those hold");
}
