/* hostsjob.c - the name of a job whose nodes are given as a list: what the same command
 * on each of them has in common. The program is no part of it, because the nodes may be
 * numbered there (torchrun --node-rank 3). */
#include "hostsjob.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "args.h"
#include "fingerprint.h"

/* More is no configuration. */
enum { FILE_BYTES_MAX = 256 * 1024, PATH_BYTES_MAX = 4096 };

/* open_file - opens a regular file; anything else would be used up by reading it. */
static int open_file(const char *path)
{
    struct stat st;

    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* open_config - opens the user's configuration file where the agent will find it, -1 if
 * there is none. */
static int open_config(const struct arguments *args)
{
    const char *named = args->config, *base = getenv("XDG_CONFIG_HOME");
    const char *below = "", *home = getenv("HOME");
    char path[PATH_BYTES_MAX];

    if (!named || !*named)
        named = getenv("MONARCH_STAGING_CONFIG");
    if (named && *named)
        return open_file(named);
    if (!faccessat(AT_FDCWD, "monarch.yaml", F_OK, AT_SYMLINK_NOFOLLOW))
        return open_file("monarch.yaml");
    if (!base || *base != '/') {
        base = home ? home : "";
        below = "/.config";
    }
    if (*base != '/' || snprintf(path, sizeof(path), "%s%s/monarch-staging/config.yaml",
                                 base, below) >= (int)sizeof(path))
        return -1;
    return open_file(path);
}

static uint64_t add_file(uint64_t print, int fd)
{
    char bytes[4096];
    size_t left = FILE_BYTES_MAX;
    ssize_t n;

    while (left &&
           (n = read(fd, bytes, sizeof(bytes) < left ? sizeof(bytes) : left)) > 0) {
        print = fingerprint_bytes(print, bytes, (size_t)n);
        left -= (size_t)n;
    }
    return print;
}

/* hostsjob_name - names the job by its nodes, options and configuration file; false if
 * no nodes are given outside of that file. */
bool hostsjob_name(char *text, size_t bytes, const struct arguments *args)
{
    const char *hosts = args->hosts ? args->hosts : getenv("MONARCH_STAGING_HOSTS");
    uint64_t print;
    int fd;

    if (!hosts || !*hosts)
        return false;
    print = fingerprint_text(FINGERPRINT_NONE, hosts);
    print = fingerprint_number(print, args->configuration);
    fd = open_config(args);
    if (fd >= 0) {
        print = add_file(print, fd);
        close(fd);
    }
    snprintf(text, bytes, "hosts-%012llx",
             (unsigned long long)(print & UINT64_C(0xffffffffffff)));
    return true;
}
