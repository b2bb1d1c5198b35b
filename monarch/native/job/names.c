/* names.c - the names of a job and of a node, and the user's configuration file, which is part of
 * the name of a job that has no other. */
#include "job/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEXT_BYTES_MAX = 256,
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

/* -- Names -- */

/* env_value - returns the value of a variable; NULL if it is unset or empty. */
const char *env_value(const char *const *envp, const char *name)
{
    size_t length = strlen(name);

    for (; *envp; envp++)
        if (!strncmp(*envp, name, length) && (*envp)[length] == '=')
            return (*envp)[length + 1] ? *envp + length + 1 : NULL;
    return NULL;
}

/* monarch_clean_name - copies a name so that it can be part of a file name. */
void monarch_clean_name(const char *from, char to[NAME_BYTES_MAX + 1])
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

/* monarch_node_name - names this node: by the user's variable, else by Slurm's, else by its host
 * name. */
void monarch_node_name(const char *const *envp, char to[NAME_BYTES_MAX + 1])
{
    const char *node = env_value(envp, "MONARCH_STAGING_NODE");
    char host[TEXT_BYTES_MAX] = "";

    if (!node)
        node = env_value(envp, "SLURMD_NODENAME");
    if (!node && !gethostname(host, sizeof(host))) {
        host[sizeof(host) - 1] = '\0';
        node = host;
    }
    monarch_clean_name(node && *node ? node : "localhost", to);
}

/* monarch_launched_by_open_mpi - whether Open MPI's daemons have launched this process.
 * Within Slurm they are a step that lacks the node of mpiexec itself, whose ranks must find
 * the same name. */
int monarch_launched_by_open_mpi(const char *const *envp)
{
    const char *name = env_value(envp, "PMIX_NAMESPACE");

    return env_value(envp, "OMPI_MCA_ess_base_jobid") ||
           (name && !strncmp(name, "prte", 4));
}

/* from_slurm - writes the name of a Slurm step. A batch script has no step, although the variables
 * of the Slurm job are set. */
static bool from_slurm(const char *const *envp, char text[TEXT_BYTES_MAX])
{
    const char *job = env_value(envp, "SLURM_JOB_ID");
    const char *step = env_value(envp, "SLURM_STEP_ID");

    if (!job || !step || monarch_launched_by_open_mpi(envp))
        return false;
    snprintf(text, TEXT_BYTES_MAX, "%s.%s", job, step);
    return true;
}

/* from_mpi - writes the name of an MPI launch from an environment variable. */
static bool from_mpi(const char *const *envp, char text[TEXT_BYTES_MAX])
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                        "PALS_APID", "PMI_JOBID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = env_value(envp, names[i]);

        if (value) {
            snprintf(text, TEXT_BYTES_MAX, "mpi-%s", value);
            return true;
        }
    }
    return false;
}

/* control_port - returns the argument of --control-port in a process's command line, or NULL. */
static const char *control_port(pid_t pid, char command[COMMAND_BYTES_MAX])
{
    size_t length = process_command(pid, command, COMMAND_BYTES_MAX);
    const char *word = command, *end = command + length;

    while (word < end && strcmp(word, "--control-port"))
        word += strlen(word) + 1;
    return word < end ? word + strlen(word) + 1 : NULL;
}

/* from_hydra - writes a name of a launch by MPICH's mpiexec, which passes none to its ranks. They
 * are children of a proxy on each node, and all proxies of a launch have the address at which
 * mpiexec listens: hydra_pmi_proxy --control-port HOST:PORT. The port is first in the name, because
 * the end of a long name is cut off. */
static bool from_hydra(const char *const *envp, char text[TEXT_BYTES_MAX])
{
    char command[COMMAND_BYTES_MAX];
    pid_t pid = env_value(envp, "PMI_RANK") ? getppid() : 0;

    for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
        const char *address = control_port(pid, command);
        const char *colon = address ? strrchr(address, ':') : NULL;

        if (colon) {
            snprintf(text, TEXT_BYTES_MAX, "mpi-%s-%.*s", colon + 1,
                     (int)(colon - address), address);
            return true;
        }
        pid = process_parent(pid);
    }
    return false;
}

/* monarch_job_name - writes the job name of the scheduler or MPI; returns whether it exists. */
int monarch_job_name(const char *const *envp, char to[NAME_BYTES_MAX + 1])
{
    char text[TEXT_BYTES_MAX];
    bool found = from_slurm(envp, text) || from_mpi(envp, text) ||
                 from_hydra(envp, text);

    if (found)
        monarch_clean_name(text, to);
    return found;
}

/* -- The configuration file, and the name of a job whose nodes are a list -- */

/* exists - whether a name exists, also that of a broken link. */
static bool exists(const char *directory, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    if (*name == '/')
        return !lstat(name, &st);
    return snprintf(path, sizeof(path), "%s/%s", directory, name) < (int)sizeof(path) &&
           !lstat(path, &st);
}

/* monarch_config_file - returns the name of the user's one configuration file if no option names
 * it, possibly relative to `directory`; NULL if there is none. `place` is its memory. */
const char *monarch_config_file(const char *const *envp, const char *directory,
                                char place[PATH_MAX])
{
    const char *named = env_value(envp, "MONARCH_STAGING_CONFIG");
    const char *base = env_value(envp, "XDG_CONFIG_HOME"), *below = "";

    if (named)
        return named;
    if (exists(directory, "monarch.yaml"))
        return "monarch.yaml";
    if (!base || *base != '/') {
        base = env_value(envp, "HOME");
        below = "/.config";
    }
    if (!base || *base != '/' ||
        snprintf(place, PATH_MAX, "%s%s/monarch-staging/config.yaml", base, below) >=
            PATH_MAX)
        return NULL;
    return exists(directory, place) ? place : NULL;
}

/* add_file - adds the content of a regular file to a fingerprint; reading a pipe would leave
 * nothing for the agent. */
static uint64_t add_file(uint64_t print, const char *path)
{
    size_t left = FILE_BYTES_MAX;
    char bytes[4096];
    struct stat st;
    ssize_t n;
    int fd;

    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return print;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && left &&
           (n = read(fd, bytes, sizeof(bytes) < left ? sizeof(bytes) : left)) > 0) {
        print = fingerprint_bytes(print, bytes, (size_t)n);
        left -= (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    return print;
}

/* monarch_hosts_job - names a job by the common parts of the same command on each of its nodes: the
 * list of nodes, the fingerprint of the options, the configuration file (NULL = none). The program
 * is not part of it, because its arguments may number the nodes (torchrun --node-rank 3). */
void monarch_hosts_job(const char *hosts, uint64_t options, const char *config,
                       char to[NAME_BYTES_MAX + 1])
{
    uint64_t print = fingerprint_text(FINGERPRINT_EMPTY, hosts);

    print = fingerprint_number(print, options);
    if (config)
        print = add_file(print, config);
    snprintf(to, NAME_BYTES_MAX + 1, "hosts-%012llx",
             (unsigned long long)(print & UINT64_C(0xffffffffffff)));
}
