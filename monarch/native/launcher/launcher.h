/* launcher.h - one `monarch run`: everything that belongs to it. */
#ifndef MONARCH_RUN_H
#define MONARCH_RUN_H

#include <stdbool.h>
#include <time.h>

#include "args.h"
#include "board.h"
#include "notices.h"
#include "program.h"
#include "rundir.h"

struct run {
    struct arguments args;
    struct program program;
    struct timespec begun; /* by the clock of file times, which are never ahead */
    struct rundir dir;
    bool dir_is_shared; /* other launchers of the job may use it */
    bool nested;        /* it is the one of the run that we are inside of */
    struct board board;
    struct notices notices; /* fd -1 = somebody else has started the agent */
    bool reported;          /* the agent has said what there is to say */
    char waits_for[256];    /* what it said last of what it does */
    char **envp;
};

int run_command(char **words, char **envp);

#endif
