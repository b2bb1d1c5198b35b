/* hydra.c - the name of a launch by MPICH's mpiexec. Its ranks are told none, but they are
 * children of a proxy on each node, and all proxies of a launch are told the same place
 * where mpiexec listens: hydra_pmi_proxy --control-port HOST:PORT. */
#include "hydra.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "procstat.h"

/* Shells and wrappers that may stand between a rank and its proxy. */
enum { GENERATIONS_MAX = 16, COMMAND_BYTES_MAX = 4096 };

/* control_port - finds the word behind --control-port in a process's command line. */
static const char *control_port(pid_t pid, char command[COMMAND_BYTES_MAX])
{
    char path[32];
    const char *word = command, *end;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    n = read(fd, command, COMMAND_BYTES_MAX - 2);
    close(fd);
    end = command + (n > 0 ? n : 0);
    memset(command + (end - command), 0, 2);
    while (word < end && strcmp(word, "--control-port"))
        word += strlen(word) + 1;
    return word < end ? word + strlen(word) + 1 : NULL;
}

/* hydra_name - names the launch that we are a rank of; false if we are none. The port
 * comes first: of a long name the end is cut. */
bool hydra_name(char *text, size_t bytes)
{
    char command[COMMAND_BYTES_MAX];
    pid_t pid = getppid();

    for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
        const char *place = control_port(pid, command);
        const char *colon = place ? strrchr(place, ':') : NULL;

        if (colon) {
            snprintf(text, bytes, "mpi-%s-%.*s", colon + 1, (int)(colon - place),
                     place);
            return true;
        }
        pid = procstat_parent(pid);
    }
    return false;
}
