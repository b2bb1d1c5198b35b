/* names.c - the names of the job and of this node, from the environment of the launch. */
#include "launcher/launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    GENERATIONS_MAX = 16, /* shells and wrappers between a rank and its proxy */
    COMMAND_BYTES_MAX = 4096,
    FILE_BYTES_MAX = 256 * 1024, /* the rest of a larger file is not read */
};

/* -- Fingerprints: FNV-1a -- */

/* fingerprint_bytes - adds bytes to a fingerprint. */
uint64_t fingerprint_bytes(uint64_t print, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < size; i++)
        print = (print ^ byte[i]) * UINT64_C(0x100000001b3);
    return print;
}

/* fingerprint_text - adds a text with its end, so that "ab", "c" is not "a", "bc". */
uint64_t fingerprint_text(uint64_t print, const char *text)
{
    return fingerprint_bytes(print, text, strlen(text) + 1);
}

/* fingerprint_number - adds a number, its lowest byte first. */
uint64_t fingerprint_number(uint64_t print, uint64_t number)
{
    unsigned char bytes[8];

    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    return fingerprint_bytes(print, bytes, sizeof(bytes));
}

/* -- The names that a launch gives -- */

/* clean - copies a name so that it can be part of a file name. */
static void clean(char to[NAME_BYTES_MAX + 1], const char *from)
{
    size_t i;

    for (i = 0; from[i] && i < NAME_BYTES_MAX; i++) {
        unsigned char c = (unsigned char)from[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';

        to[i] = plain ? (char)c : '_';
    }
    to[i] = '\0';
}

static const char *value_of(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* by_open_mpi - whether Open MPI's daemons have launched this process. Within Slurm they are
 * a step that lacks the node of mpiexec itself, whose ranks must find the same name. */
static bool by_open_mpi(void)
{
    const char *name = value_of("PMIX_NAMESPACE");

    return value_of("OMPI_MCA_ess_base_jobid") || (name && !strncmp(name, "prte", 4));
}

/* from_slurm - the name of a Slurm step. A batch script has no step, although the variables
 * of the Slurm job are set. */
static bool from_slurm(char *text, size_t bytes)
{
    const char *job = value_of("SLURM_JOB_ID"), *step = value_of("SLURM_STEP_ID");

    if (!job || !step || by_open_mpi())
        return false;
    snprintf(text, bytes, "%s.%s", job, step);
    return true;
}

/* control_port - the argument of --control-port in a process's command line, or NULL. */
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

/* from_hydra - the name of a launch by MPICH's mpiexec, which gives its ranks none. They are
 * children of a proxy on each node, and all proxies of a launch have the address at which
 * mpiexec listens: hydra_pmi_proxy --control-port HOST:PORT. The port comes first in the
 * name, because the end of a long name is cut off. */
static bool from_hydra(char *text, size_t bytes)
{
    char command[COMMAND_BYTES_MAX];
    pid_t pid = getppid();

    for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
        const char *address = control_port(pid, command);
        const char *colon = address ? strrchr(address, ':') : NULL;

        if (colon) {
            snprintf(text, bytes, "mpi-%s-%.*s", colon + 1, (int)(colon - address),
                     address);
            return true;
        }
        pid = process_parent(pid);
    }
    return false;
}

/* from_mpi - the name of an MPI launch. Without any other name it is that of the parent,
 * which the ranks of one node have in common. */
static bool from_mpi(char *text, size_t bytes)
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                        "PALS_APID", "PMI_JOBID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = value_of(names[i]);

        if (value) {
            snprintf(text, bytes, "mpi-%s", value);
            return true;
        }
    }
    if (!value_of("PMI_RANK"))
        return false;
    if (from_hydra(text, bytes))
        return true;
    snprintf(text, bytes, "mpi-%d-%llu", (int)getppid(),
             (unsigned long long)process_start_ticks(getppid()));
    return true;
}

/* -- The name of a job whose nodes are a list: what the same command has in common on each
 *    of them. The program is not part of it, because its arguments may number the nodes
 *    (torchrun --node-rank 3). -- */

/* open_file - opens a regular file; reading a pipe would leave nothing for the agent. */
static int open_file(const char *path)
{
    struct stat st;

    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* open_config - opens the user's configuration file, which the agent finds in the same
 * order; -1 if there is none. */
static int open_config(const struct arguments *args)
{
    const char *named = args->config, *base = getenv("XDG_CONFIG_HOME");
    const char *below = "", *home = getenv("HOME");
    char path[PATH_MAX];

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

/* add_file - adds the content of a file to a fingerprint. */
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

/* from_hosts - a name made of the list of nodes, the options and the configuration file;
 * false if no nodes are given outside of that file. */
static bool from_hosts(char *text, size_t bytes, const struct arguments *args)
{
    const char *hosts = args->hosts ? args->hosts : getenv("MONARCH_STAGING_HOSTS");
    uint64_t print;
    int fd;

    if (!hosts || !*hosts)
        return false;
    print = fingerprint_text(FINGERPRINT_EMPTY, hosts);
    print = fingerprint_number(print, args->fingerprint);
    fd = open_config(args);
    if (fd >= 0) {
        print = add_file(print, fd);
        close(fd);
    }
    snprintf(text, bytes, "hosts-%012llx",
             (unsigned long long)(print & UINT64_C(0xffffffffffff)));
    return true;
}

/* random_name - a name that no other job has. */
static void random_name(char *text, size_t bytes)
{
    uint64_t bits = 0;

    if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != sizeof(bits)) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        bits = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 16 ^
               (uint64_t)getpid() << 24;
    }
    snprintf(text, bytes, "local-%012llx",
             (unsigned long long)(bits & 0xffffffffffffu));
}

/* node_find - names the node: as the user does first, then as Slurm does. */
static void node_find(struct job *job)
{
    char host[256] = "";
    const char *node = value_of("MONARCH_STAGING_NODE");

    if (!node)
        node = value_of("SLURMD_NODENAME");
    if (!node && !gethostname(host, sizeof(host))) {
        host[sizeof(host) - 1] = '\0';
        node = host;
    }
    clean(job->node, node && *node ? node : "localhost");
}

/* job_find - names the job, as --job does first, and the node. */
void job_find(struct job *job, const struct arguments *args)
{
    char text[256];

    job->shared = args->job || from_slurm(text, sizeof(text)) ||
                  from_mpi(text, sizeof(text)) || from_hosts(text, sizeof(text), args);
    if (!job->shared)
        random_name(text, sizeof(text));
    clean(job->name, args->job ? args->job : text);
    node_find(job);
}
