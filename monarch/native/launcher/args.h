/* args.h - the command line of `monarch run`. */
#ifndef MONARCH_ARGS_H
#define MONARCH_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct arguments {
    char **all;      /* everything behind `run`, for the agent */
    char **command;  /* the program and its arguments; NULL with --help */
    const char *job; /* NULL = from the environment */
    bool help, quiet, strict, wait;
    uint64_t
        configuration; /* digest of the options that configure the agent, 0 = none */
};

int arguments_parse(struct arguments *args, char **words);

#endif
