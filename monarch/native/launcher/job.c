/* job.c - the names of the job and of this node, from what the launch has set. */
#include "jobname.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "hostsjob.h"
#include "hydra.h"
#include "procstat.h"

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

/* by_own_daemons - whether Open MPI's daemons have launched us. Within Slurm they are a
 * step that lacks the node of mpiexec itself, whose ranks must find the same name. */
static bool by_own_daemons(void)
{
    const char *name = value_of("PMIX_NAMESPACE");

    return value_of("OMPI_MCA_ess_base_jobid") || (name && !strncmp(name, "prte", 4));
}

/* from_slurm - names a Slurm step; in a batch script there is none, although the job's
 * own variables are set. */
static bool from_slurm(char *text, size_t bytes)
{
    const char *job = value_of("SLURM_JOB_ID"), *step = value_of("SLURM_STEP_ID");

    if (!job || !step || by_own_daemons())
        return false;
    snprintf(text, bytes, "%s.%s", job, step);
    return true;
}

/* from_mpi - names an MPI launch; where nothing names it, by the parent that those of one
 * node have in common. */
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
    if (hydra_name(text, bytes))
        return true;
    snprintf(text, bytes, "mpi-%d-%llu", (int)getppid(),
             (unsigned long long)procstat_start(getppid()));
    return true;
}

static void from_chance(char *text, size_t bytes)
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

/* jobname_find - names the job, as the options do first, and the node. */
void jobname_find(struct jobname *name, const struct arguments *args)
{
    char text[256];
    const char *node = value_of("MONARCH_STAGING_NODE");

    name->shared = args->job || from_slurm(text, sizeof(text)) ||
                   from_mpi(text, sizeof(text)) ||
                   hostsjob_name(text, sizeof(text), args);
    if (!name->shared)
        from_chance(text, sizeof(text));
    clean(name->job, args->job ? args->job : text);
    if (!node)
        node = value_of("SLURMD_NODENAME");
    if (!node && !gethostname(text, sizeof(text))) {
        text[sizeof(text) - 1] = '\0';
        node = text;
    }
    clean(name->node, node && *node ? node : "localhost");
}
