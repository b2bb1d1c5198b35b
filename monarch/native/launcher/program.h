/* program.h - the program that the user wants to run. */
#ifndef MONARCH_PROGRAM_H
#define MONARCH_PROGRAM_H

#include <limits.h>

enum { EXIT_OURS = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

struct program {
    char **argv;
    char path[PATH_MAX];
};

int program_find(struct program *program, char **argv);
int program_exec(const struct program *program, char **envp);

#endif
