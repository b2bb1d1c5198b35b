/* job.c - the names of this run's job and node. */
#include "launcher.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* from_option - writes the name in --job. */
static bool from_option(const struct run *run, char to[NAME_BYTES_MAX + 1])
{
    if (run->args.job)
        monarch_clean_name(run->args.job, to);
    return run->args.job;
}

/* from_parent - writes a name of an MPI launch that nothing else names, from the parent, which the
 * ranks of one node have in common. */
static bool from_parent(const char *const *envp, char to[NAME_BYTES_MAX + 1])
{
    if (!env_value(envp, "PMI_RANK"))
        return false;
    snprintf(to, NAME_BYTES_MAX + 1, "mpi-%d-%llu", (int)getppid(),
             (unsigned long long)process_start_ticks(getppid()));
    return true;
}

/* from_hosts - writes the name of a job whose nodes an option or the environment lists. The agent
 * finds those of a configuration file. */
static bool from_hosts(const struct run *run, const char *const *envp,
                       char to[NAME_BYTES_MAX + 1])
{
    const char *hosts = run->args.hosts, *config = run->args.config;
    char place[PATH_MAX];

    if (!hosts)
        hosts = env_value(envp, "MONARCH_STAGING_HOSTS");
    if (!hosts || !*hosts)
        return false;
    if (!config || !*config)
        config = monarch_config_file(envp, ".", place);
    monarch_hosts_job(hosts, run->args.fingerprint, config, to);
    return true;
}

enum { DO_NOT_WAIT = 1 }; /* GRND_NONBLOCK */

/* random_name - writes a name that no other job has. It uses the system call, because older libcs
 * have no function for it. */
static void random_name(char to[NAME_BYTES_MAX + 1])
{
    uint64_t bits = 0;

    if (syscall(SYS_getrandom, &bits, sizeof(bits), DO_NOT_WAIT) != sizeof(bits)) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        bits = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 16 ^
               (uint64_t)getpid() << 24;
    }
    snprintf(to, NAME_BYTES_MAX + 1, "local-%012llx",
             (unsigned long long)(bits & 0xffffffffffffu));
}

/* job_find - names the job and the node. */
void job_find(struct run *run)
{
    const char *const *envp = (const char *const *)run->envp;
    struct job *job = &run->job;

    job->named = from_option(run, job->name) || monarch_job_name(envp, job->name) ||
                 from_parent(envp, job->name) || from_hosts(run, envp, job->name);
    if (!job->named)
        random_name(job->name);
    monarch_node_name(envp, job->node);
}
