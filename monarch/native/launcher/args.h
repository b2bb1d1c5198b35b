/* args.h - the command line of `monarch run`. */
#ifndef MONARCH_ARGS_H
#define MONARCH_ARGS_H

#include <stdbool.h>
#include <stdint.h>

enum { OPTIONS_MAX = 32 };

struct arguments {
    char **all;     /* everything behind `run`, for the agent */
    char **command; /* the program and its arguments; NULL with --help */
    const char *job, *hosts, *config; /* NULL = not given */
    bool help, quiet, strict, wait;
    uint64_t given[OPTIONS_MAX]; /* fingerprint of each option's values, 0 = none */
    uint64_t configuration;      /* of all options for the agent, 0 = none */
};

int arguments_parse(struct arguments *args, char **words);

#endif
