/* before.c - a launcher of programs on several nodes that we stand in front of: it hands
 * our variables on to nodes where there is neither an agent nor the Shim they name. */
#include "before.h"

#include <stdlib.h>
#include <string.h>

#include "words.h"

/* before_warn - says so if the program is one and the allocation has several nodes. */
void before_warn(const char *program)
{
    static const char *const launchers[] = {"srun",    "mpiexec", "mpirun",
                                            "prterun", "aprun",   "jsrun"};
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;

    if (!nodes || !*nodes || !strcmp(nodes, "1"))
        return;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (!strcmp(name, launchers[i]))
            words_warn("%s starts programs on other nodes too, which have no agent: "
                       "run `%s ... monarch run ...` instead",
                       name, name);
}
